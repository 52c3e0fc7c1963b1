package main

import (
	"context"
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// callCommand asks a running service.
type callCommand struct {
	Addr       string      `env:"RLS_ADDR" default:"127.0.0.1:8081" help:"Where the service's gRPC listens."`
	Domain     string      `required:"" help:"The domain, as Envoy's filter has it."`
	Entries    []string    `arg:"" optional:"" name:"key=value" help:"The entries of a descriptor, in order."`
	Descriptor []string    `short:"d" sep:"none" placeholder:"KEY=VALUE,…" help:"A further descriptor; may be given again."`
	Hits       clientHits  `default:"1" help:"What the request costs; 0 looks, a negative number gives back."`
	Limit      clientLimit `placeholder:"N/UNIT" help:"A limit that the request brings along, such as 5/minute or 5/15minute."`
	Repeat     count       `default:"1" help:"Ask this often."`
	Timeout    duration    `default:"2s" help:"Longest wait for an answer."`
}

// Help is the end of call --help.
func (callCommand) Help() string {
	return `Examples:
  envoy-rls call --domain demo user=ann --repeat 5
  envoy-rls call --domain demo user=ann --hits 0         look, and charge nothing
  envoy-rls call --domain shop tenant=t -d tenant=t,user=u

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
	req, err := c.request()
	if err != nil {
		return false, err
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return false, fmt.Errorf("--addr (RLS_ADDR) is %q: want host:port", c.Addr)
	}
	conn, err := grpc.NewClient(c.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, fmt.Errorf("--addr: %w", err)
	}
	defer func() { _ = conn.Close() }()
	client := ratelimit.NewRateLimitServiceClient(conn)
	for i := range max(1, int(c.Repeat)) {
		answer, explained, err := c.once(client, req)
		if err != nil {
			return false, fmt.Errorf("asking %s: %s: %s", c.Addr, status.Code(err), status.Convert(err).Message())
		}
		for d, st := range answer.GetStatuses() {
			number := "" // only before the first descriptor of an answer
			if d == 0 {
				number = strconv.Itoa(i + 1)
			}
			fmt.Fprintf(s.out, "%-3s %s\n", number, inWords(st, at(explained, d)))
		}
		over = answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT
		if len(answer.GetStatuses()) > 1 {
			fmt.Fprintf(s.out, "    %s overall\n", answer.GetOverallCode())
		}
	}
	return over, nil
}

func (c *callCommand) once(
	client ratelimit.RateLimitServiceClient, req *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.Timeout))
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, rls.ExplainHeader, "1")
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

func (c *callCommand) request() (*ratelimit.RateLimitRequest, error) {
	lists := make([][]string, 0, 1+len(c.Descriptor))
	if len(c.Entries) > 0 {
		lists = append(lists, c.Entries)
	}
	for _, d := range c.Descriptor {
		lists = append(lists, strings.Split(d, ","))
	}
	if len(lists) == 0 {
		return nil, errors.New("no descriptor; give its entries as key=value")
	}
	req := &ratelimit.RateLimitRequest{Domain: c.Domain}
	for _, list := range lists {
		d := &common.RateLimitDescriptor{Limit: c.Limit.override(), IsNegativeHits: c.Hits.giveBack}
		if c.Hits.count != 1 || c.Hits.giveBack {
			d.HitsAddend = wrapperspb.UInt64(c.Hits.count)
		}
		for _, text := range list {
			key, value, ok := strings.Cut(text, "=")
			if !ok || key == "" {
				return nil, fmt.Errorf("%q is not an entry; write key=value", text)
			}
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

// inWords is a status on one line.
func inWords(st *ratelimit.RateLimitResponse_DescriptorStatus, explained string) string {
	limit := st.GetCurrentLimit()
	rule := explained
	if rule == "" {
		rule = limit.GetName()
	}
	if limit == nil {
		if st.GetLimitRemaining() == 1<<32-1 {
			rule += "  unlimited"
		}
		return strings.TrimRight(fmt.Sprintf("%-10s  %s", st.GetCode(), rule), " ")
	}
	period := descriptors.Unit(limit.GetUnit()).Words(limit.GetUnitMultiplier().GetValue())
	text := fmt.Sprintf("%-10s  %s  %d per %s", st.GetCode(), rule, limit.GetRequestsPerUnit(), period)
	wait := st.GetDurationUntilReset().AsDuration()
	if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
		return fmt.Sprintf("%s  retry after %ds", text, int(wait.Seconds()))
	}
	return fmt.Sprintf("%s  remaining %d  reset %ds", text, st.GetLimitRemaining(), int(wait.Seconds()))
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
