// Command bench measures rate limit services over gRPC: a no-op server as the floor, a load, and a comparison that
// starts the servers itself. It runs on Linux, since it reads CPU times from /proc.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// CLI is the command line: one field a subcommand.
type CLI struct {
	Noop    Noop    `cmd:"" help:"Serve a no-op rate limit service: the floor that every figure is a ratio to."`
	Load    Load    `cmd:"" help:"Put load on a rate limit service. Only loopback targets (127.0.0.0/8, ::1, localhost) are accepted: it is built to exhaust a server, and must not reach one that others use."`
	Scale   Scale   `cmd:"" help:"Measure what a decision costs as there are more rules, counters, callers or descriptors."`
	Profile Profile `cmd:"" help:"Tell on what the CPU time of a decision is spent, in the service and in Redis."`
	Compare Compare `cmd:"" help:"Measure servers in turn, round after round, and print targets, medians, and ratios to the no-op. What it starts, it ends."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cli := new(CLI)
	command := kong.Parse(cli,
		kong.Name("bench"),
		kong.Description("Measures rate limit services over gRPC."),
		kong.Vars{"scenarios": strings.Join(scenarioNames(), ","), "shapes": shapeNames()},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(os.Stdout, (*io.Writer)(nil)),
	)
	command.FatalIfErrorf(command.Run())
}
