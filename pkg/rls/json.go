package rls

import (
	"io"
	"net/http"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxJSON is the largest body that JSON reads.
const maxJSON = 256 << 10

// JSON returns a handler that takes a RateLimitRequest as protojson and answers with the RateLimitResponse:
// status 200 if the request is admitted, 429 if it is over limit, 400 if it is wrong, and 503 if it could
// not be decided (400 as well if Compat is set).
func (s *Service) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
		if err != nil {
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
			http.Error(w, status.Convert(err).Message(), s.httpError(err))
			return
		}
		writeJSON(w, answer)
	})
}

func (s *Service) httpError(err error) int {
	if s.options.Compat || status.Code(err) == codes.InvalidArgument {
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
	if answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body) // the client is gone if it fails
}
