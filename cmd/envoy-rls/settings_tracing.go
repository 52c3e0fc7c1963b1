package main

import (
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/tracing"
)

// tracingSettings are about spans. Where they go is for the variables OTEL_EXPORTER_OTLP_* to say, which the library reads.
type tracingSettings struct {
	Enabled           bool         `env:"TRACING_ENABLED" help:"Send spans of calls to an OpenTelemetry collector: see OTEL_EXPORTER_OTLP_ENDPOINT in docs/tracing.md."`
	ExporterProtocol  otlpProtocol `env:"TRACING_EXPORTER_PROTOCOL,OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,OTEL_EXPORTER_OTLP_PROTOCOL" default:"http" help:"http or grpc."`
	ServiceName       string       `env:"TRACING_SERVICE_NAME,OTEL_SERVICE_NAME" default:"${tracing_service}" help:"The service's name in traces."`
	ServiceNamespace  string       `env:"TRACING_SERVICE_NAMESPACE" placeholder:"NAME" help:"Its namespace."`
	ServiceInstanceID string       `name:"service-instance-id" env:"TRACING_SERVICE_INSTANCE_ID" placeholder:"ID" help:"This replica's. Default: a random one."`
	SamplingRate      part         `env:"TRACING_SAMPLING_RATE" default:"1" placeholder:"PART" help:"From 0 to 1, of the calls whose caller has not decided."`
	Queue             count        `env:"OTEL_BSP_MAX_QUEUE_SIZE" default:"0" placeholder:"N" help:"Spans that may wait for the collector; 0 is 2048. Others are dropped."`
}

func (s *tracingSettings) options() tracing.Options {
	return tracing.Options{
		GRPC: s.ExporterProtocol == otlpGRPC, Service: s.ServiceName, Namespace: s.ServiceNamespace,
		Instance: s.ServiceInstanceID, Version: builtFrom().version, SamplingRate: float64(s.SamplingRate), Queue: int(s.Queue),
	}
}

// unusableEndpoint names a variable that the library will not make sense of, or is "".
func (s *tracingSettings) unusableEndpoint() string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		u, err := url.Parse(strings.TrimSpace(os.Getenv(name)))
		if err != nil || *u != (url.URL{}) && u.Host == "" && s.ExporterProtocol != otlpGRPC {
			return name
		}
	}
	return ""
}

type (
	otlpProtocol string
	part         float64
)

const otlpGRPC otlpProtocol = "grpc"

// UnmarshalText implements encoding.TextUnmarshaler. It knows the names that OpenTelemetry's own variables have, too.
func (p *otlpProtocol) UnmarshalText(text []byte) error {
	return oneOf(p, text, "http", otlpGRPC, "http/protobuf", "http/json", "")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *part) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("want a part, a number from 0 to 1")
	}
	*p = part(v)
	return nil
}
