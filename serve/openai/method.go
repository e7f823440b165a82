package openai

import "net/http"

// OnlyBy refuses the methods that an endpoint does not have.
func OnlyBy(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fault := Invalid("", "%.256s is asked by %s, not by %.16s", r.URL.Path, method, r.Method)
		fault.Status = http.StatusMethodNotAllowed
		w.Header().Set("Allow", method)
		fault.Write(w)
	}
}
