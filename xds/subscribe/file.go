package subscribe

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/xds/xdspb"
)

// fileMagic begins the file and names its format. The SHA-256 of all that follows it is next, then an xdspb.LastGood.
const (
	fileMagic  = fileHeader + "1\n"
	fileHeader = "headgate last good rules, format "
)

// File keeps the last good sets of a sidecar on disk. It holds the secrets of the domains: only its owner can read it.
type File struct {
	path string
}

// NewFile returns the file at path. Its folder must exist.
func NewFile(path string) *File { return &File{path: path} }

// ErrTaken is what Lock returns where another program has the file.
var ErrTaken = errors.New("another sidecar uses it")

// Lock keeps other programs that lock it from the file, until unlock: two would each overwrite what the other saved, and
// start with rules that are not theirs. It holds a file beside it, PATH.lock, since the file itself is replaced.
func (f *File) Lock() (unlock func() error, err error) {
	held, err := lock(f.path + ".lock")
	if err != nil {
		return nil, err
	}
	return held.Close, nil
}

// Load returns what Save last wrote; nothing where there is no file. A file that is not whole, byte for byte, is an error:
// half a set of rules must not be enforced.
func (f *File) Load() (*xdspb.LastGood, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &xdspb.LastGood{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load the last good rules: %w", err)
	}
	body, ok := bytes.CutPrefix(b, []byte(fileMagic))
	if !ok {
		return nil, f.otherFormat(b)
	}
	if len(body) < sha256.Size {
		return nil, fmt.Errorf("load the last good rules: %s is cut short", f.path)
	}
	sum, body := body[:sha256.Size], body[sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, fmt.Errorf("load the last good rules: %s is damaged: its checksum is wrong", f.path)
	}
	var m xdspb.LastGood
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("load the last good rules: %s: %w", f.path, err)
	}
	return &m, nil
}

// otherFormat says why a file does not begin as this program writes it.
func (f *File) otherFormat(b []byte) error {
	first, _, _ := bytes.Cut(b[:min(len(b), 2*len(fileMagic))], []byte("\n"))
	if format, ok := bytes.CutPrefix(first, []byte(fileHeader)); ok {
		return fmt.Errorf("load the last good rules: %s is of format %q, and this program reads format 1", f.path, format)
	}
	return fmt.Errorf("load the last good rules: %s is something else, or damaged", f.path)
}

// Save replaces the file in one step: after a crash at any moment there is the old one or the new one.
func (f *File) Save(m *xdspb.LastGood) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("save the last good rules: %w", err)
	}
	sum := sha256.Sum256(body)
	b := make([]byte, 0, len(fileMagic)+len(sum)+len(body))
	b = append(b, fileMagic...)
	b = append(b, sum[:]...)
	b = append(b, body...)
	// The temporary file must be on the same file system as its target, so not in the system's folder for such files.
	err = renameio.WriteFile(f.path, b, 0o600, renameio.WithTempDir(filepath.Dir(f.path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("save the last good rules: %w", err)
	}
	return nil
}
