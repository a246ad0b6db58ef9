package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is how often the files are read at most.
const lookEvery = time.Second

// Files name what TLS is made with, in PEM.
type Files struct {
	Cert string // the own certificate, followed by those between it and its authority; a client may have none
	Key  string // of Cert
	CA   string // the authorities that the other side's certificate must come from
}

// Options say where a server or client tells of its files.
type Options struct {
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

// material is what the files held.
type material struct {
	own         *tls.Certificate // nil: none
	authorities *x509.CertPool   // nil: no file names any
}

// follower keeps the newest good material.
type follower struct {
	files  Files
	log    *slog.Logger
	failed prometheus.Counter

	now atomic.Pointer[material]

	mu     sync.Mutex
	looked time.Time
	seen   [sha256.Size]byte // the content that was last looked at, good or bad
}

// follow reads the files for the first time; then any fault is an error, except that an expired certificate is only
// logged: a sidecar that cannot reach its control plane still has rules to enforce.
func follow(files Files, o Options) (*follower, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &follower{
		files: files,
		log:   o.Log.With("component", "certs"),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_tls_reload_failures_total",
			Help: "New TLS files that could not be used, so that the ones before stay.",
		}),
	}
	content, err := files.read()
	if err != nil {
		return nil, err
	}
	m, err := content.parse()
	if err != nil {
		return nil, err
	}
	if m.expired() {
		f.log.Warn("certificate has expired: others will refuse it", "file", files.Cert, "expired", m.own.Leaf.NotAfter)
	}
	f.now.Store(m)
	f.looked, f.seen = time.Now(), content.sum()
	return f, f.register(o.Registerer)
}

func (f *follower) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	if err := reg.Register(f.failed); err != nil {
		return fmt.Errorf("certs: register metrics: %w", err)
	}
	if f.files.Cert == "" {
		return nil
	}
	err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_tls_certificate_expires_timestamp_seconds",
		Help: "When the own TLS certificate expires, in seconds since the Unix epoch.",
	}, func() float64 { return float64(f.current().own.Leaf.NotAfter.Unix()) }))
	if err != nil {
		return fmt.Errorf("certs: register metrics: %w", err)
	}
	return nil
}

// current looks at the files when it is time, unless somebody else is just doing so.
func (f *follower) current() *material {
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		f.look()
	}
	return f.now.Load()
}

func (f *follower) look() {
	if time.Since(f.looked) < lookEvery {
		return
	}
	f.looked = time.Now()
	content, err := f.files.read()
	sum := content.sum()
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error()))
	}
	if sum == f.seen {
		return
	}
	f.seen = sum
	var m *material
	if err == nil {
		m, err = content.parse()
	}
	if err == nil && m.expired() {
		err = fmt.Errorf("%s: it expired on %s", f.files.Cert, m.own.Leaf.NotAfter.UTC().Format(time.DateTime))
	}
	if err != nil {
		f.failed.Inc()
		f.log.Error("new TLS files cannot be used: the ones before stay", "err", err)
		return
	}
	f.now.Store(m)
	f.log.Info("new TLS files are in use", "file", f.files.Cert, "authorities", f.files.CA)
}

func (m *material) expired() bool { return m.own != nil && time.Now().After(m.own.Leaf.NotAfter) }

// content is what stands in the files, nil where none is named.
type content struct {
	files         Files
	cert, key, ca []byte
}

func (files Files) read() (content, error) {
	c := content{files: files}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{files.Cert, &c.cert}, {files.Key, &c.key}, {files.CA, &c.ca}} {
		if f.name == "" {
			continue
		}
		b, err := os.ReadFile(f.name)
		if err != nil {
			return content{}, err // which names the file
		}
		*f.to = b
	}
	return c, nil
}

// sum differs when anything does: the parts are hashed one by one, so that nothing moves from one to the next unseen.
func (c content) sum() [sha256.Size]byte {
	var sums []byte
	for _, part := range [][]byte{c.cert, c.key, c.ca} {
		sum := sha256.Sum256(part)
		sums = append(sums, sum[:]...)
	}
	return sha256.Sum256(sums)
}

func (c content) parse() (*material, error) {
	m := &material{}
	if c.files.Cert != "" {
		own, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", c.files.Cert, c.files.Key, err)
		}
		m.own = &own
	}
	if c.files.CA != "" {
		pool, err := authorities(c.ca)
		if err != nil {
			return nil, fmt.Errorf("authorities %s: %w", c.files.CA, err)
		}
		m.authorities = pool
	}
	return m, nil
}

// authorities is strict where x509.CertPool passes over what it cannot read: a damaged file must not shut out, in
// silence, those whose authority it held.
func authorities(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	n := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a %s among the certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("there is no certificate in it, as PEM")
	}
	return pool, nil
}
