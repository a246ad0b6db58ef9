package auth

import (
	"errors"
	"net/http"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// HTTP lets everybody ask whether the program lives and is ready. For everything else the caller must be known, and be a
// viewer of all domains; its identity is in the request's context.
func (a *Authenticator) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.credentials == nil {
			next.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Local(anyone))))
			return
		}
		if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		identity, err := a.identify(r.Context(), proofOfRequest(r))
		if err != nil {
			a.failed(r.Context(), err, r.Method+" "+r.URL.Path, r.RemoteAddr)
		} else {
			err = identity.May(access.Viewer, "")
		}
		if err != nil {
			refuse(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), identity)))
	})
}

func proofOfRequest(r *http.Request) proof {
	p := proof{authorization: r.Header.Values("Authorization")}
	if r.TLS != nil {
		p.verified(r.TLS.VerifiedChains)
	}
	return p
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusForbidden
	switch {
	case errors.Is(err, rules.ErrUnauthenticated):
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
		w.Header().Set("Connection", "close") // a certificate belongs to its connection: the next one may have another
	case errors.Is(err, rules.ErrUnavailable):
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, err.Error(), status)
}
