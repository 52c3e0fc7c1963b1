package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// callCommand asks a running service.
type callCommand struct {
	Addr       string      `env:"RLS_ADDR" default:"127.0.0.1:8081" help:"Where the service's gRPC listens: host:port, or unix: and the path of a socket."`
	Domain     string      `required:"" help:"The domain, as Envoy's filter has it."`
	Entries    []string    `arg:"" optional:"" name:"key=value" help:"The entries of a descriptor, in order."`
	Descriptor []string    `short:"d" sep:"none" placeholder:"KEY=VALUE,…" help:"A further descriptor; may be given again."`
	Hits       clientHits  `default:"1" help:"What the request costs; 0 looks, a negative number gives back."`
	Limit      clientLimit `placeholder:"N/UNIT" help:"A limit that the request brings along, such as 5/minute or 5/15minute."`
	Repeat     positive    `default:"1" help:"Ask this often."`
	Timeout    duration    `default:"2s" help:"Longest wait for an answer."`
	JSON       bool        `name:"json" help:"Print each answer as a line of JSON."`

	clientTLS
}

// Help is the end of call --help.
func (callCommand) Help() string {
	return `Examples:
  envoy-rls call --domain demo user=ann --repeat 5
  envoy-rls call --domain demo user=ann --hits 0         look, and charge nothing
  envoy-rls call --domain shop tenant=t -d tenant=t,user=u
  envoy-rls call --domain demo user=ann --json           {"code":"OK","descriptors":[...]}
  envoy-rls call --domain demo user=ann --ca ca.crt --cert tls.crt --key tls.key

Exit status: 0 the last answer was OK, 1 it was OVER_LIMIT, 2 there was none.`
}

// Run implements the command.
func (c *callCommand) Run(s streams) error {
	over, err := c.ask(s)
	switch {
	case err != nil:
		s.complain(err)
		return exitCode(exitUsage)
	case over:
		return exitCode(exitError)
	}
	return nil
}

// ask asks, prints, and tells whether the last answer was over limit.
func (c *callCommand) ask(s streams) (over bool, err error) {
	req, err := requestOf(c.Domain, descriptorTexts(c.Entries, c.Descriptor), c.Hits, c.Limit)
	if err != nil {
		return false, err
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil && !strings.HasPrefix(c.Addr, "unix:") {
		return false, fmt.Errorf("--addr (RLS_ADDR) is %q: want host:port, or unix:path", c.Addr)
	}
	secured, err := c.credentials()
	if err != nil {
		return false, err
	}
	conn, err := grpc.NewClient(c.Addr, grpc.WithTransportCredentials(secured))
	if err != nil {
		return false, fmt.Errorf("--addr: %w", err)
	}
	defer func() { _ = conn.Close() }()
	client := ratelimit.NewRateLimitServiceClient(conn)
	rls.AskForExplanation(req)
	for i := range int(c.Repeat) {
		answer, explained, err := c.once(client, req)
		if err != nil {
			return false, c.callFailed(err)
		}
		over = answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT
		if err := c.print(s, i+1, answer, explained); err != nil {
			return false, err
		}
	}
	return over, nil
}

// print prints one of the answers.
func (c *callCommand) print(s streams, number int, answer *ratelimit.RateLimitResponse, explained []string) error {
	if c.JSON {
		return json.NewEncoder(s.out).Encode(asJSON(answer, explained))
	}
	before := strconv.Itoa(number) // only before the first descriptor
	for d, st := range answer.GetStatuses() {
		fmt.Fprintf(s.out, "%-3s %s\n", before, s.inWords(st, at(explained, d)))
		before = ""
	}
	if len(answer.GetStatuses()) > 1 {
		fmt.Fprintf(s.out, "    %s overall\n", s.coloured(answer.GetOverallCode()))
	}
	return nil
}

func (c *callCommand) once(
	client ratelimit.RateLimitServiceClient, req *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.Timeout))
	defer cancel()
	var trailer metadata.MD
	answer, err := client.ShouldRateLimit(ctx, req, grpc.Trailer(&trailer), grpc.WaitForReady(false))
	return answer, trailer.Get(rls.ExplainTrailer), err
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// inWords is a status on one line.
func (s streams) inWords(st *ratelimit.RateLimitResponse_DescriptorStatus, explained string) string {
	limit, rule := st.GetCurrentLimit(), ruleOf(st, explained)
	code := s.coloured(st.GetCode()) + strings.Repeat(" ", max(0, len("OVER_LIMIT")-len(st.GetCode().String())))
	if limit == nil {
		if isUnlimited(st) {
			rule += "  unlimited"
		}
		return strings.TrimRight(fmt.Sprintf("%s  %s", code, rule), " ")
	}
	period := descriptors.Unit(limit.GetUnit()).Words(limit.GetUnitMultiplier().GetValue())
	text := fmt.Sprintf("%s  %s  %d per %s", code, rule, limit.GetRequestsPerUnit(), period)
	wait := st.GetDurationUntilReset().AsDuration()
	if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
		return fmt.Sprintf("%s  retry after %ds", text, int(wait.Seconds()))
	}
	return fmt.Sprintf("%s  remaining %d  reset %ds", text, st.GetLimitRemaining(), int(wait.Seconds()))
}

// coloured is a code in the colour of what it means.
func (s streams) coloured(code ratelimit.RateLimitResponse_Code) string {
	if code == ratelimit.RateLimitResponse_OVER_LIMIT {
		return s.painted(red, code.String())
	}
	return s.painted(green, code.String())
}

// ruleOf is the limit that decided, or why there is none, as far as the service says.
func ruleOf(st *ratelimit.RateLimitResponse_DescriptorStatus, explained string) string {
	return cmp.Or(explained, st.GetCurrentLimit().GetName())
}

// isUnlimited tells whether a rule says so.
func isUnlimited(st *ratelimit.RateLimitResponse_DescriptorStatus) bool {
	return st.GetCurrentLimit() == nil && st.GetLimitRemaining() == 1<<32-1
}

// clientHits is the cost of a request.
type clientHits struct {
	count    uint64
	giveBack bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *clientHits) UnmarshalText(text []byte) error {
	digits, negative := strings.CutPrefix(string(text), "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return errors.New("want a whole number; 0 looks, a negative one gives back")
	}
	*h = clientHits{n, negative}
	return nil
}

// clientLimit is a limit that a request brings along; the zero value is none.
type clientLimit struct {
	requests, multiplier uint32
	unit                 descriptors.Unit
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *clientLimit) UnmarshalText(text []byte) error {
	number, period, _ := strings.Cut(string(text), "/")
	name := strings.TrimLeft(period, "0123456789")
	unit, known := descriptors.ParseUnit(name)
	requests, err := strconv.ParseUint(number, 10, 32)
	multiplier, multiplierErr := strconv.ParseUint("0"+period[:len(period)-len(name)], 10, 32)
	if err != nil || multiplierErr != nil || !known || unit == descriptors.Week {
		return errors.New("want a number per unit, such as 5/minute or 5/15minute; units are second to year, without week")
	}
	*l = clientLimit{uint32(requests), uint32(multiplier), unit}
	return nil
}

func (l clientLimit) override() *common.RateLimitDescriptor_RateLimitOverride {
	if l.unit == 0 {
		return nil
	}
	o := &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: l.requests, Unit: typev3.RateLimitUnit(l.unit)}
	if l.multiplier > 1 {
		o.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
	}
	return o
}
