package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// exitNoMatch is explain's exit code for a request that no rule matches.
const exitNoMatch = 3

// explainPatience bounds how long counts are waited for.
const explainPatience = 2 * time.Second

// explainCommand says how rules match a request. Where rules and counters are, it knows by the settings of serve.
type explainCommand struct {
	Domain     string      `help:"The domain, as Envoy's filter has it."`
	Entries    []string    `arg:"" optional:"" name:"key=value" help:"The entries of a descriptor, in order."`
	Descriptor []string    `short:"d" sep:"none" placeholder:"KEY=VALUE,…" help:"A further descriptor; may be given again."`
	Hits       clientHits  `default:"1" help:"What the request would cost."`
	Limit      clientLimit `placeholder:"N/UNIT" help:"A limit that the request brings along, such as 5/minute."`
	Request    string      `placeholder:"FILE" help:"Read the request: a RateLimitRequest in JSON, or a line of Envoy's access log in JSON that has the rate limit filter's dynamic metadata. - is the standard input."`
	From       string      `xor:"from" placeholder:"URL" help:"Ask the admin port of a running service, such as http://localhost:6070, for its own rules and counts."`
	Fleet      []string    `xor:"from" placeholder:"NAME:PORT,…" help:"Ask the admin ports of all replicas: every address that a name has, as a headless Service's, or the host:port of each."`
	JSON       bool        `name:"json" help:"Print JSON."`

	settings
}

// explainSettings are the settings of serve that explain minds, by how their names begin.
var explainSettings = []string{
	"compat", "rules", "runtime-", "merge-domains", "store", "redis", "key-prefix", "hash-key", "default-", "stop-increment",
}

// Help is the end of explain --help.
func (explainCommand) Help() string {
	return `Examples:
  envoy-rls explain --domain shop tenant=t path=/a       with the rules in ./config
  envoy-rls explain --domain shop user=ann --redis redis://localhost:6379
  envoy-rls explain --domain shop user=ann --from http://localhost:6070
  envoy-rls explain --domain shop user=ann --fleet envoy-rls-headless:6070
  tail -1 access.log | envoy-rls explain --request -

It charges nothing. Beside a service, in its environment, it finds the same rules and counters. Counts need --redis,
--from or --fleet: without them it says what matches.

Exit status: 0 a rule matches, and the request would be admitted as far as is known; 1 it would be OVER_LIMIT; 2 it
can't be explained, or the store can't be asked; 3 no rule matches. With --fleet, the first of 2, 1, 3 that some
replica's answer comes to.`
}

// hideSettings hides the settings of serve from explain that it doesn't mind.
func hideSettings(k *kong.Kong) error {
	for _, command := range k.Model.Children {
		if command.Name != "explain" {
			continue
		}
		for _, flag := range command.Flags {
			minds := false
			for _, name := range explainSettings {
				minds = minds || strings.HasPrefix(flag.Name, name)
			}
			flag.Hidden = flag.Hidden || len(flag.Envs) > 0 && !minds
		}
	}
	return nil
}

// Run implements the command.
func (c *explainCommand) Run(s streams) error {
	req, err := c.request()
	if err == nil && len(c.Fleet) > 0 {
		return c.explainByAll(s, req)
	}
	var x *rls.Explanation
	if err == nil {
		x, err = c.explain(s, req)
	}
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	if c.JSON {
		err = writeIndented(s.out, x)
	} else {
		err = writeExplanation(s.out, x)
	}
	if err != nil {
		return err
	}
	if x.Failure != "" && (c.From == "" || x.Answer == answerError) { // a service's own answer is one without its store, too
		s.complain(fmt.Errorf("asking the store: %s; --store=memory explains without counts", x.Failure))
		return exitCode(exitUsage)
	}
	return explainedExit(x)
}

// explainedExit is the exit code for an explanation, as an error.
func explainedExit(x *rls.Explanation) error {
	matched := false
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		matched = matched || d.Rule != "" || d.Overridden
	}
	switch {
	case !matched:
		return exitCode(exitNoMatch)
	case x.Answer == answerOverLimit:
		return exitCode(exitError)
	}
	return nil
}

// The answers that an explanation tells.
const (
	answerOverLimit = "OVER_LIMIT"
	answerError     = "error"
)

func (c *explainCommand) explain(s streams, req *ratelimit.RateLimitRequest) (*rls.Explanation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), explainPatience)
	defer cancel()
	if c.From != "" {
		return explainedBy(ctx, c.From, req)
	}
	rules, err := c.compiled(s)
	if err != nil {
		return nil, err
	}
	options := c.serviceOptions(rls.Events{})
	var store limiter.Store
	if c.storeKind() == storeRedis {
		pair, err := c.openPair()
		if err != nil {
			return nil, err
		}
		defer pair.close()
		store, options.Locate = pair.store(), pair.locate
	}
	service := rls.New(store, options)
	service.SetRules(rules)
	x, err := service.Explain(ctx, req)
	if err != nil {
		return nil, errors.New(status.Convert(err).Message())
	}
	return x, nil
}

// request is what is to be explained.
func (c *explainCommand) request() (*ratelimit.RateLimitRequest, error) {
	lists := descriptorTexts(c.Entries, c.Descriptor)
	switch {
	case c.Request == "" && c.Domain == "":
		return nil, errors.New("no request; give --domain and the entries of a descriptor, or --request")
	case c.Request == "":
		return requestOf(c.Domain, lists, c.Hits, c.Limit)
	case c.Domain != "" || len(lists) > 0:
		return nil, errors.New("--request has the domain and the descriptors in it; give one or the other")
	}
	in := io.Reader(os.Stdin)
	if c.Request != "-" {
		f, err := os.Open(c.Request)
		if err != nil {
			return nil, fmt.Errorf("--request: %w", err)
		}
		defer func() { _ = f.Close() }() // it was read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxMessage))
	if err != nil {
		return nil, fmt.Errorf("--request: %w", err)
	}
	req, err := readRequest(data)
	if err != nil {
		return nil, fmt.Errorf("--request %s: %w", c.Request, err)
	}
	return req, nil
}

// compiled is the rules. What is wrong with some of them is told of, and the others are explained.
func (c *explainCommand) compiled(s streams) (*descriptors.Ruleset, error) {
	source := c.ruleFiles()
	if len(source.Paths) == 0 {
		return nil, errors.New("rules come from a control plane; say by --from which running service explains, or give files by --rules")
	}
	read, err := source.Read()
	if err != nil {
		return nil, fmt.Errorf("%w; say where they are by --rules", err)
	}
	options, err := c.compileOptions()
	if err != nil {
		return nil, err
	}
	rules, problems := descriptors.Compile(descriptors.Unpack(read...), options)
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			s.complain(errors.New(p.String()))
		}
	}
	if empty(rules) {
		return nil, fmt.Errorf("no usable rules in %s", strings.Join(source.Paths, ", "))
	}
	return rules, nil
}

// openPair opens what counters are in. A command may wait longer than a call.
func (c *explainCommand) openPair() (redisPair, error) {
	if err := errors.Join(c.checkRedis()...); err != nil {
		return redisPair{}, err
	}
	redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)})
	if c.StoreTimeout == 0 {
		c.StoreTimeout = timeout(explainPatience)
	}
	pair, certificates := redisPair{}, c.certificates(unwatched)
	main, err := redisstore.Open(c.redisOptions(certificates))
	if err != nil {
		return pair, fmt.Errorf("--redis (REDIS_URL): %w", err)
	}
	pair.main = main
	if !c.RedisPerSecond {
		return pair, nil
	}
	if pair.perSecond, err = redisstore.Open(c.perSecondOptions(certificates)); err != nil {
		pair.close()
		return pair, fmt.Errorf("--redis-per-second-url (REDIS_PERSECOND_URL): %w", err)
	}
	return pair, nil
}

// explainedBy has the admin port at a URL explain a request.
func explainedBy(ctx context.Context, from string, req *ratelimit.RateLimitRequest) (*rls.Explanation, error) {
	base, err := adminBase("--from", from)
	if err != nil {
		return nil, err
	}
	ask, err := explainRequest(req)
	if err != nil {
		return nil, err
	}
	client, x := adminClient{Timeout: duration(explainPatience)}, &rls.Explanation{}
	reply := client.askOne(ctx, base, ask)
	reply.read(x)
	return x, reply.problem()
}

// explainRequest is what has admin explain a request.
func explainRequest(req *ratelimit.RateLimitRequest) (adminRequest, error) {
	text, err := protojson.Marshal(req)
	return adminRequest{http.MethodPost, "/explain", json.RawMessage(text)}, err
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
