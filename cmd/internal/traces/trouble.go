package traces

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// tellOfTrouble has the log told of what OpenTelemetry reports, which it does for the whole process.
func tellOfTrouble(log *slog.Logger) {
	otel.SetErrorHandler(&trouble{log: log})
	otel.SetLogger(logr.FromSlogHandler(unread{log.Handler()}))
}

// unread logs which settings could not be read, and not what they are: headers hold the collector's credentials.
type unread struct{ slog.Handler }

func (unread) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (u unread) Handle(ctx context.Context, r slog.Record) error {
	told := slog.NewRecord(r.Time, slog.LevelWarn, "a setting of OpenTelemetry is left out: it cannot be read", 0)
	told.AddAttrs(slog.String("what", r.Message))
	return u.Handler.Handle(ctx, told)
}

// tellEvery bounds how often failures are logged: a collector can be away for days.
const tellEvery = time.Minute

// maxTold bounds what is logged of a failure, in bytes: some have the whole answer of the collector.
const maxTold = 300

// trouble logs the first of the failures to send, and then one a minute.
type trouble struct {
	log *slog.Logger

	mu   sync.Mutex
	told time.Time
}

// Handle is called for each batch that was not sent.
func (t *trouble) Handle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.told.IsZero() || now.Sub(t.told) >= tellEvery {
		t.told = now
		t.log.Warn("traces are not taken by the collector, and dropped", "err", fmt.Sprintf("%.*s", maxTold, err))
	}
}
