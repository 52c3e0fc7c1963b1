package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// scriptPatience is how long a script waits for what should happen soon.
const scriptPatience = 20 * time.Second

// TestTheProgramAsAnOperatorMeetsIt runs testdata/*.txtar. A script has free ports in the variables that the
// program reads, nothing else of this environment, and the commands below.
func TestTheProgramAsAnOperatorMeetsIt(t *testing.T) {
	programs := quickProgram(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", programs+string(os.PathListSeparator)+e.Getenv("PATH"))
			return scriptEnvironment(e)
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":      await,
			"certify":    certify,
			"ends":       ends,
			"exits":      exits,
			"health":     showHealth,
			"holdstream": holdStream,
			"httpget":    httpGet,
			"httppost":   httpPost,
			"ready":      ready,
			"redis":      startRedis,
			"rediskeys":  redisKeys,
			"signal":     signalAll,
			"stopredis":  stopRedis,
		},
	})
}

// quickProgram returns a directory with an envoy-rls that is the test binary only to serve: commands that end soon take ten
// times as long to start with the race detector, and hardly do two things at once. Those that wait for 2 s wait for longer, or
// are run again: a busy machine may hold up the service.
func quickProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	services := filepath.Join(dir, "services", "envoy-rls")
	script := fmt.Sprintf(`#!/bin/sh
case "$1" in
serve) exec %[1]q "$@" ;;
call | top) exec %[2]q "$@" --timeout=%[3]s ;;
explain) ;;
*) exec %[2]q "$@" ;;
esac
for try in 1 2 3; do
	%[2]q "$@" >"$TMPDIR/out" 2>"$TMPDIR/err"
	code=$?
	grep -q %[4]q "$TMPDIR/out" "$TMPDIR/err" || break
done
cat "$TMPDIR/out"
cat "$TMPDIR/err" >&2
exit $code
`, services, proctest.Binary(t), scriptPatience, tooLate)
	if err := errors.Join(
		os.Mkdir(filepath.Dir(services), 0o700), os.Symlink(self, services),
		os.WriteFile(filepath.Join(dir, "envoy-rls"), []byte(script), 0o700), //nolint:gosec // it is run
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testKey is where a script keeps its testing.TB.
type testKey struct{}

func scriptEnvironment(e *testscript.Env) error {
	t, ok := e.T().(testing.TB)
	if !ok {
		return errors.New("the script was not started by a test")
	}
	proctest.AwayFromMidnight(t)
	e.Values[testKey{}] = t
	e.Vars = append(e.Vars, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "REPO="+proctest.Root(),
		"GORACE=atexit_sleep_ms=0") // the race detector's default is a second for each process
	for _, name := range []string{"PORT", "GRPC_PORT", "DEBUG_PORT", "REDIS_PORT"} {
		e.Setenv(name, strconv.Itoa(proctest.FreePort(t)))
	}
	e.Setenv("WEB", "http://127.0.0.1:"+e.Getenv("PORT"))
	e.Setenv("ADMIN", "http://127.0.0.1:"+e.Getenv("DEBUG_PORT"))
	e.Setenv("RLS_ADDR", "127.0.0.1:"+e.Getenv("GRPC_PORT"))
	return nil
}

// arguments returns n arguments of a command that can't be negated.
func arguments(ts *testscript.TestScript, neg bool, args []string, names ...string) []string {
	if neg || len(args) != len(names) {
		ts.Fatalf("want the arguments %q, and no !", names)
	}
	return args
}

// poll waits until try has nothing to say, and returns its last words if that takes too long.
func poll(patience time.Duration, try func() error) error {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("waited %s in vain: %w", patience, err)
		}
	}
}

// fetch returns an answer as its status, a newline, and its body.
func fetch(method, url string, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	text, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%d\n%s", r.StatusCode, text), err
}

// httpget URL prints the answer's status and body.
func httpGet(ts *testscript.TestScript, neg bool, args []string) {
	args = arguments(ts, neg, args, "URL")
	answer, err := fetch(http.MethodGet, args[0], nil)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), answer)
}

// httppost URL FILE posts the file, and prints the answer's status and body.
func httpPost(ts *testscript.TestScript, neg bool, args []string) {
	args = arguments(ts, neg, args, "URL", "FILE")
	answer, err := fetch(http.MethodPost, args[0], []byte(ts.ReadFile(args[1])))
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), answer)
}

// await URL PATTERN polls until the answer's status and body match; a dot matches newlines, too.
func await(ts *testscript.TestScript, neg bool, args []string) {
	args = arguments(ts, neg, args, "URL", "PATTERN")
	pattern, err := regexp.Compile("(?ms)" + args[1])
	ts.Check(err)
	ts.Check(poll(scriptPatience, func() error {
		answer, err := fetch(http.MethodGet, args[0], nil)
		if err == nil && !pattern.MatchString(answer) {
			err = fmt.Errorf("%s answers %s", args[0], answer)
		}
		return err
	}))
}

// [!] ready [DURATION] polls /readyz until it says so, or makes sure that it does not for so long.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	patience := scriptPatience
	if len(args) > 0 {
		d, err := time.ParseDuration(args[0])
		ts.Check(err)
		patience = d
	}
	err := poll(patience, func() error {
		answer, err := fetch(http.MethodGet, ts.Getenv("WEB")+"/readyz", nil)
		if err == nil && !strings.HasPrefix(answer, "200\n") {
			err = errors.New("/readyz answers " + answer)
		}
		return err
	})
	if neg && err == nil {
		ts.Fatalf("it is ready")
	}
	if !neg {
		ts.Check(err)
	}
}

// exits CODE PROGRAM [ARGUMENT...] is exec for a program that must end with this code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("want a code and a program, and no !")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("it ended with %d", code)
	}
}

// signal NAME sends TERM, INT or KILL to all that runs in the background.
func signalAll(ts *testscript.TestScript, neg bool, args []string) {
	args = arguments(ts, neg, args, "NAME")
	sig, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[0]]
	if !ok {
		ts.Fatalf("want TERM, INT or KILL")
	}
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(sig))
	}
}

// ends waits for the end of all that runs in the background. What does not end is killed.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args)
	for _, c := range ts.BackgroundCmds() {
		ts.Defer(func() { _ = c.Process.Kill() }) // it has ended unless the script failed
		ts.Check(poll(scriptPatience, func() error {
			if err := c.Process.Signal(syscall.Signal(0)); err == nil {
				return fmt.Errorf("%v goes on", c.Args)
			}
			return nil
		}))
	}
}

// redis [OPTION...] starts a redis-server on $REDIS_PORT.
func startRedis(ts *testscript.TestScript, _ bool, args []string) {
	t, ok := ts.Value(testKey{}).(testing.TB)
	if !ok {
		ts.Fatalf("the script was not started by a test")
	}
	program := os.Getenv("REDIS_SERVER_BIN")
	if program == "" {
		program = "redis-server"
	}
	options := append([]string{
		"--port", ts.Getenv("REDIS_PORT"), "--bind", "127.0.0.1", "--save", "", "--dir", ts.Getenv("WORK"),
	}, args...)
	server := proctest.Start(t, nil, program, options...)
	ts.Defer(server.Kill) // before its directory is removed
	ts.Check(poll(scriptPatience, func() error {
		c, err := net.Dial("tcp", "127.0.0.1:"+ts.Getenv("REDIS_PORT"))
		if err == nil {
			err = c.Close()
		}
		return err
	}))
}

// stopredis ends what redis started, and waits until nobody listens on its port.
func stopRedis(ts *testscript.TestScript, _ bool, _ []string) {
	addr := "127.0.0.1:" + ts.Getenv("REDIS_PORT")
	c, err := net.Dial("tcp", addr)
	ts.Check(err)
	_, err = io.WriteString(c, "SHUTDOWN NOSAVE\r\n")
	ts.Check(err)
	ts.Check(poll(scriptPatience, func() error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return nil //nolint:nilerr // nobody listens: that is what was waited for
		}
		return errors.Join(errors.New("it goes on"), c.Close())
	}))
	ts.Check(c.Close())
}

// healthClient asks the service until the script's end.
func healthClient(ts *testscript.TestScript) healthpb.HealthClient {
	conn, err := grpc.NewClient(ts.Getenv("RLS_ADDR"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() }) // the service may have cut it
	return healthpb.NewHealthClient(conn)
}

// health SERVICE prints what the gRPC health check says of it.
func showHealth(ts *testscript.TestScript, neg bool, args []string) {
	args = arguments(ts, neg, args, "SERVICE")
	now, err := healthClient(ts).Check(context.Background(), &healthpb.HealthCheckRequest{Service: args[0]})
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), now.GetStatus())
}

// holdstream keeps a gRPC stream open until the script's end.
func holdStream(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args)
	watch, err := healthClient(ts).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	ts.Check(err)
	_, err = watch.Recv()
	ts.Check(err)
}

// redisKeys checks that a database of Redis has keys that match, or with ! that it has none.
func redisKeys(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] rediskeys database regexp")
	}
	db, err := strconv.Atoi(args[0])
	ts.Check(err)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ts.Getenv("REDIS_PORT"), DB: db})
	defer func() { _ = c.Close() }() // it has been asked
	keys, err := c.Keys(context.Background(), "*").Result()
	ts.Check(err)
	match := regexp.MustCompile(args[1])
	if slices.ContainsFunc(keys, match.MatchString) == neg {
		ts.Fatalf("the keys are %q", keys)
	}
}
