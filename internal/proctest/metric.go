package proctest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Get reads a page of the service's HTTP port.
func (s *Service) Get(path string) (code int, body string) {
	s.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + s.HTTP + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// Metric is the sum of a metric's series that have all the labels, each as name="value".
func (s *Service) Metric(name string, labels ...string) float64 {
	s.t.Helper()
	sum := 0.0
	_, body := s.Get("/metrics")
	for line := range strings.SplitSeq(body, "\n") {
		end := strings.LastIndex(line, " ") // a label's value may hold a space
		if end < 0 {
			continue
		}
		if own, _, _ := strings.Cut(line[:end], "{"); own != name || !ContainsAll(line, labels...) {
			continue
		}
		n, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		sum += n
	}
	return sum
}

// ContainsAll tells whether a text has all the parts in it.
func ContainsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
