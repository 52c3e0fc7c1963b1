package rls

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxJSON is the largest body that JSON reads.
const maxJSON = 256 << 10

// JSON returns a handler that takes a RateLimitRequest as protojson, by any method, and answers with the RateLimitResponse:
// status 200 if the request is admitted, 429 if it is over limit, 500 if the overall code is UNKNOWN. Otherwise the body is
// text that says why: 400 if the request is wrong, 413 if it is too large, and 503 if it could not be decided. A client that
// leaves is not waited for.
func (s *Service) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			http.Error(w, fmt.Sprintf("the request has more than %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		var req ratelimit.RateLimitRequest
		if err := protojson.Unmarshal(body, &req); err != nil {
			http.Error(w, "not a RateLimitRequest: "+err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := s.ShouldRateLimit(r.Context(), &req)
		if err != nil {
			http.Error(w, status.Convert(err).Message(), httpError(status.Code(err)))
			return
		}
		writeJSON(w, answer)
	})
}

// httpError is the status for an error's code. Unknown is that of wrong requests if Compat is set.
func httpError(code codes.Code) int {
	if code == codes.InvalidArgument || code == codes.Unknown {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

func writeJSON(w http.ResponseWriter, answer *ratelimit.RateLimitResponse) {
	body, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch answer.GetOverallCode() {
	case ratelimit.RateLimitResponse_OVER_LIMIT:
		w.WriteHeader(http.StatusTooManyRequests)
	case ratelimit.RateLimitResponse_UNKNOWN:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(body) // the client is gone if it fails
}
