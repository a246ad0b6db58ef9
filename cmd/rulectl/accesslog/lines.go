package accesslog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line. Servers bound a request's line and headers to some kilobytes; a longer line is malformed, and
// is skipped without being held.
const maxLine = 1 << 20

var errLong = fmt.Errorf("it has more than %d bytes", maxLine)

// lines reads a text line by line in bounded memory. Lines end with LF or CRLF; the last one may end with the text.
type lines struct {
	in     *bufio.Reader
	number int // of the line that next returned
	buf    []byte
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line, or errLong for one that is too long, or io.EOF. The bytes hold until the next call.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.buf)+len(part) > maxLine+2 {
			long, l.buf = true, l.buf[:0]
		}
		if !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(part) == 0 && len(l.buf) == 0 && !long:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read the log: %w", err)
		}
		l.number++
		if long {
			return nil, errLong
		}
		return withoutEnd(l.buf, l.number == 1), nil
	}
}

// withoutEnd takes off the end of the line, and the mark that some programs put at the beginning of a UTF-8 text.
func withoutEnd(line []byte, first bool) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if first && len(line) >= 3 && line[0] == 0xEF && line[1] == 0xBB && line[2] == 0xBF {
		line = line[3:]
	}
	return line
}
