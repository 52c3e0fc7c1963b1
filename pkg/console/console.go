// Package console is the page that shows operators a running service. Its files are served as they are: there is no build
// step, and nothing from elsewhere. What it shows comes from JSON of the same port.
package console

import (
	"embed"
	"io/fs"
	"net/http"
)

// Path is where the page is, and its files below it.
const Path = "/console"

//go:embed page
var embedded embed.FS

// policy has the browser run nothing but the page's own files, and let no text become markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// New returns the handler of Path and all that is below it. It serves the page itself at / as well: links in it are
// relative, so that it also works behind a proxy that adds to paths. It sets the page's policy, and leaves other headers
// to who protects all of the port.
func New() http.Handler {
	page, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) //nolint:forbidigo // the name is valid
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path+"/", http.StripPrefix(Path, http.FileServerFS(page)))
	index := func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, page, "index.html") }
	mux.HandleFunc("GET "+Path, index)
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET "+Path+"/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", ".."+Path)
		w.WriteHeader(http.StatusMovedPermanently)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Cache-Control", "no-cache")
		mux.ServeHTTP(w, r)
	})
}
