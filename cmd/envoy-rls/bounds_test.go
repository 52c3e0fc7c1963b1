package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestAMessageIsNoLongerThanItMayBe fills a request up with a value.
func TestAMessageIsNoLongerThanItMayBe(t *testing.T) {
	s := proctest.StartService(t, "--rules="+writeRules(t))
	client := ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC))
	for size, want := range map[int]codes.Code{maxMessage: codes.OK, maxMessage + 1: codes.ResourceExhausted} {
		req := shopRequest("user", "filler")
		entry := req.GetDescriptors()[1].GetEntries()[0]
		for missing := size; missing != 0; missing = size - proto.Size(req) {
			entry.Value = strings.Repeat("x", len(entry.GetValue())+missing)
		}
		if _, err := client.ShouldRateLimit(t.Context(), req); status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %s", size, err, want)
		}
	}
}

// TestAConnectionHasNoMoreStreamsThanItMay opens one more, as no client does that keeps to what it is told.
func TestAConnectionHasNoMoreStreamsThanItMay(t *testing.T) {
	s := proctest.StartService(t, "--rules="+writeRules(t))
	conn, err := net.Dial("tcp", s.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it has been used
	if err := conn.SetDeadline(time.Now().Add(scriptPatience)); err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for n := range uint32(maxStreams + 1) {
		call := http2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: callHeaders(t), EndHeaders: true}
		if err := f.WriteHeaders(call); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(conn, &sent) }() // the reading below tells
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("no stream was refused: %v", err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := frame.Value(http2.SettingMaxConcurrentStreams); !frame.IsAck() && (!ok || n != maxStreams) {
				t.Errorf("clients are told of %d streams", n)
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID != 2*maxStreams+1 || frame.ErrCode != http2.ErrCodeRefusedStream {
				t.Errorf("stream %d ended by %s", frame.StreamID, frame.ErrCode)
			}
			return
		}
	}
}

// callHeaders begin a call, without anything that a later one needs to be understood.
func callHeaders(t *testing.T) []byte {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", ratelimit.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}
