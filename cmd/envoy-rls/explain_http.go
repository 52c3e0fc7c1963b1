package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const explainUsage = "ask as /explain?domain=shop&descriptor=user=ann,path=/a, with further descriptor=, hits= and limit=, " +
	"or post a RateLimitRequest or an access log line as JSON"

// serveExplain explains a request by the rules and counters of this service. The answer is text, or JSON for those who
// accept it.
func (srv *server) serveExplain(w http.ResponseWriter, r *http.Request) {
	req, err := askedFor(w, r)
	if err != nil {
		http.Error(w, fmt.Sprintf("%s; %s", err, explainUsage), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainPatience)
	defer cancel()
	x, err := srv.service.Explain(ctx, req)
	switch {
	case status.Code(err) == codes.Unavailable:
		http.Error(w, status.Convert(err).Message(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, fmt.Sprintf("%s; %s", status.Convert(err).Message(), explainUsage), http.StatusBadRequest)
	case wantsJSON(r):
		w.Header().Set("Content-Type", "application/json")
		_ = writeIndented(w, x) // the client is gone if it fails
	default:
		plainText(w)
		_ = writeExplanation(w, x) // the client is gone if it fails
	}
}

// askedFor is the request that is to be explained.
func askedFor(w http.ResponseWriter, r *http.Request) (*ratelimit.RateLimitRequest, error) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		return readRequest(body)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("reading the query: %w", err)
	}
	return queriedFor(query)
}

func queriedFor(query url.Values) (*ratelimit.RateLimitRequest, error) {
	hits, limit := clientHits{count: 1}, clientLimit{}
	if text := query.Get("hits"); text != "" {
		if err := hits.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("hits is %q: %w", text, err)
		}
	}
	if text := query.Get("limit"); text != "" {
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("limit is %q: %w", text, err)
		}
	}
	return requestOf(query.Get("domain"), descriptorTexts(nil, query["descriptor"]), hits, limit)
}

func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func plainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
}
