package notify

import "net/http"

// Over sends through a transport of a test's own.
func (n *Notifier) Over(t http.RoundTripper) { n.client.Transport = t }
