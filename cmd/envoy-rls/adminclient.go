package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
)

// adminClient reaches the admin port of a running service.
type adminClient struct {
	Admin     string   `env:"ENVOY_RLS_ADMIN" default:"http://127.0.0.1:6070" placeholder:"URL" help:"The admin port of a replica. Default: ${default}."`
	TokenFile string   `placeholder:"FILE" help:"Its first token is shown, in the form of the service's --admin-token-file. Without it, ENVOY_RLS_TOKEN is the token."`
	Timeout   duration `default:"${patience}" help:"Longest wait for an answer."`
}

// adminRequest is what admin is asked.
type adminRequest struct {
	method, path string // the path may have a query
	body         any    // is sent as JSON, unless it is nil
}

// adminReply is a replica's answer, or why there is none.
type adminReply struct {
	Replica string // host:port
	Body    []byte
	Err     error
}

// refusal is told as it is: what a replica itself says of a request that it does not serve, or why none was sent.
type refusal string

func (r refusal) Error() string { return string(r) }

// maxReply is the longest answer that is read.
const maxReply = 8 << 20

// call asks the replica, and reads its answer into into, unless that is nil.
func (c *adminClient) call(r adminRequest, into any) error {
	base, err := adminBase("--admin (ENVOY_RLS_ADMIN)", c.Admin)
	if err != nil {
		return err
	}
	reply := c.askOne(context.Background(), base, r)
	if into != nil {
		reply.read(into)
	}
	return reply.problem()
}

// askOne asks the admin port at a URL, for no longer than Timeout.
func (c *adminClient) askOne(ctx context.Context, base string, r adminRequest) adminReply {
	_, replica, _ := strings.Cut(base, "://")
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	body, err := c.send(ctx, base, r)
	return adminReply{Replica: replica, Body: body, Err: err}
}

func (c *adminClient) send(ctx context.Context, base string, r adminRequest) ([]byte, error) {
	req, err := c.request(ctx, base, r)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},                                      // and no proxy: replicas are near
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a token is for one host
	}
	answer, err := client.Do(req)
	if err != nil {
		var asking *url.Error
		if errors.As(err, &asking) {
			err = asking.Err // the URL is known
		}
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err != nil {
		return nil, err
	}
	return body, wrongAnswer(answer, body)
}

func (c *adminClient) request(ctx context.Context, base string, r adminRequest) (*http.Request, error) {
	var sent []byte
	if r.body != nil {
		var err error
		if sent, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	token, err := c.token()
	if err != nil {
		return nil, refusal("--token-file: " + err.Error())
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// wrongAnswer is why an answer is none that was asked for, or nil.
func wrongAnswer(answer *http.Response, body []byte) error {
	var failure admin.Failure
	switch {
	case answer.StatusCode < http.StatusMultipleChoices:
		return nil
	case json.Unmarshal(body, &failure) == nil && failure.Error != "":
		return refusal(readable(failure.Error))
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("it has no %s: want the admin port, of a version that has it", answer.Request.URL.Path)
	}
	return fmt.Errorf("it answers %s: %.500s", answer.Status, readable(strings.TrimSpace(string(body))))
}

// read reads a reply's JSON into v, and tells whether there was one.
func (r *adminReply) read(v any) bool {
	if r.Err == nil {
		if err := json.Unmarshal(r.Body, v); err != nil {
			r.Err = fmt.Errorf("what it answers can't be read: %w", err)
		}
	}
	return r.Err == nil
}

// problem is why a replica did not answer as it was to, for those who asked it alone, or nil.
func (r *adminReply) problem() error {
	var own refusal
	if r.Err == nil || errors.As(r.Err, &own) {
		return r.Err
	}
	return fmt.Errorf("%s: %w; is it a replica's admin port, which --admin, --fleet or --from names?", r.Replica, r.Err)
}

// adminBase is the URL that a flag has, as paths are appended to it.
func adminBase(flag, text string) (string, error) {
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return "", fmt.Errorf("%s is %q: want a URL such as http://127.0.0.1:6070", flag, text)
	}
	return strings.TrimSuffix(text, "/"), nil
}

func (c *adminClient) token() (string, error) {
	if c.TokenFile == "" {
		return os.Getenv("ENVOY_RLS_TOKEN"), nil
	}
	return admin.FirstToken(c.TokenFile)
}

// sentEntries reads entries, each key=value.
func sentEntries(texts []string) (list []admin.Entry, err error) {
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not an entry; write key=value", text)
		}
		list = append(list, admin.Entry{Key: key, Value: value})
	}
	return list, nil
}

// printTable prints rows below each other, the first of which is a head.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = cmp.Or(onTerminal(cell), "-")
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// onTerminal is text without what a terminal would obey.
func onTerminal(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// readable is text of several lines without what a terminal would obey.
func readable(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = onTerminal(line)
	}
	return strings.Join(lines, "\n")
}

// inSeconds is a number of seconds as a duration.
func inSeconds(n int64) string { return (time.Duration(n) * time.Second).String() }
