package sigv4

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxChunk of a chunk that is signed: it is held whole, since its signature
	// comes before it.
	maxChunk = 1 << 20
	maxLine  = 8 << 10
	step     = 64 << 10 // how much is read at once
)

// Body is the body that goes out behind what was signed: chunks and trailers are
// verified with the secret that stands in for the real one and signed anew; a
// digest that was declared is compared at the end. It is nil where neither is to
// be done. Every fault is a *Refusal from Read, before the end was given.
func (c *Claim) Body(m Message, body io.Reader, out Signed, inside, outside string) (io.Reader, error) {
	if !c.Chunked() {
		if c.payload == "" || c.payload == unsigned {
			return nil, nil // nothing is to be done
		}
		return &digested{src: body, sum: sha256.New(), want: c.payload}, nil
	}
	decoded, trailers, err := c.chunks(m)
	if err != nil {
		return nil, err
	}
	b := &chunks{src: bufio.NewReaderSize(body, maxLine), left: decoded, trailers: trailers}
	if c.payload != unsignedTrailer {
		b.in = &seal{key: signingKey(inside, c.scope), scope: c.scope.String(), stamp: c.stamp, last: c.signature}
		b.out = &seal{key: signingKey(outside, out.scope), scope: out.scope.String(), stamp: out.stamp, last: out.signature}
	}
	b.ends = c.payload == chunkedSigned
	return b, nil
}

// seal signs one chunk after another.
type seal struct {
	key          []byte
	scope, stamp string
	last         string
}

// emptyDigest is that of nothing.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// chunk signs a chunk by its digest.
func (s *seal) chunk(digest string) string {
	s.last = hex.EncodeToString(mac(s.key, algorithm+"-PAYLOAD\n"+s.stamp+"\n"+s.scope+"\n"+s.last+"\n"+emptyDigest+"\n"+digest))
	return s.last
}

// trailer signs the trailers by their digest.
func (s *seal) trailer(digest string) string {
	s.last = hex.EncodeToString(mac(s.key, algorithm+"-TRAILER\n"+s.stamp+"\n"+s.scope+"\n"+s.last+"\n"+digest))
	return s.last
}

// chunks are a body of chunks on its way out.
type chunks struct {
	src      *bufio.Reader
	in, out  *seal    // nil: chunks are not signed
	left     int64    // bytes of data that are still to come
	trailers []string // that may come; none twice
	ends     bool     // no trailers: the last chunk is the end
	open     int64    // what is left of an unsigned chunk
	buf      []byte
	ready    []byte // of buf
	err      error
}

// Read gives what was verified and signed anew.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.buf = c.buf[:0]
		if err := c.next(); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = refuse("the body ends within a chunk")
			}
			c.err = err
			continue
		}
		c.ready = c.buf
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// next puts one more chunk, or a part of an unsigned one, into the buffer.
func (c *chunks) next() error {
	if c.open > 0 {
		return c.pass()
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	text, signature, err := c.head(line)
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(text, 16, 64)
	if err != nil || size > c.left || c.in != nil && size > maxChunk {
		return refuse("a chunk is larger than %d bytes, or than what was declared of the body", maxChunk)
	}
	c.left -= size
	if size == 0 && c.left > 0 {
		return refuse("the body is shorter than X-Amz-Decoded-Content-Length says")
	}
	c.buf = append(c.buf, text...)
	if c.in == nil {
		c.buf = append(c.buf, "\r\n"...)
		if size == 0 {
			return c.end()
		}
		c.open = size
		return nil
	}
	c.buf = append(c.buf, ";chunk-signature="...)
	place := len(c.buf)
	c.buf = append(append(c.buf, signature...), "\r\n"...)
	begin := len(c.buf)
	if err := c.take(int(size)); err != nil {
		return err
	}
	digest := Digest(c.buf[begin:])
	if !same(c.in.chunk(digest), signature) {
		return refuse("the signature of a chunk is not the one that the keys of the environment make of it")
	}
	copy(c.buf[place:], c.out.chunk(digest))
	if size == 0 {
		return c.end()
	}
	return c.close()
}

// head reads the line before a chunk: its size as it is written, and its
// signature.
func (c *chunks) head(line string) (size, signature string, err error) {
	size, extension, more := strings.Cut(line, ";")
	bad := size == "" || len(size) > 12 || !all(size, func(b byte) bool { return isHex(b) || b >= 'A' && b <= 'F' })
	if c.in != nil {
		signature, more = strings.CutPrefix(extension, "chunk-signature=")
		bad = bad || !more || len(signature) != 64 || !all(signature, isHex)
	} else {
		bad = bad || more
	}
	if bad {
		return "", "", refuse("a chunk's first line can't be read")
	}
	return size, signature, nil
}

// pass passes a part of an unsigned chunk.
func (c *chunks) pass() error {
	n := min(c.open, step)
	if err := c.take(int(n)); err != nil {
		return err
	}
	if c.open -= n; c.open == 0 {
		return c.close()
	}
	return nil
}

// take reads data into the buffer, and makes room for no more than came.
func (c *chunks) take(n int) error {
	for n > 0 {
		part := min(n, step)
		c.buf = slices.Grow(c.buf, part)
		at := len(c.buf)
		c.buf = c.buf[:at+part]
		if _, err := io.ReadFull(c.src, c.buf[at:]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// close reads what closes a chunk.
func (c *chunks) close() error {
	line, err := c.line()
	if err == nil && line != "" {
		err = refuse("a chunk is longer than its first line says")
	}
	c.buf = append(c.buf, "\r\n"...)
	return err
}

// end reads what comes behind the last chunk. Only when all of that is right is
// the last chunk given, so nothing that is not passes for a whole body.
func (c *chunks) end() error {
	if c.ends {
		if err := c.close(); err != nil {
			return err
		}
	} else if err := c.trailing(); err != nil {
		return err
	}
	switch _, err := c.src.ReadByte(); {
	case err == nil:
		return refuse("something comes behind the end of the body")
	case !errors.Is(err, io.EOF):
		return err
	}
	c.ready, c.err = c.buf, io.EOF
	return nil
}

// trailing reads the trailers, verifies their signature and signs them anew.
func (c *chunks) trailing() error {
	var signed bytes.Buffer
	had := map[string]bool{}
	for {
		line, err := c.line()
		if errors.Is(err, io.EOF) && line == "" && c.in != nil && had[trailerSignature] {
			return nil // some clients leave the last line out
		}
		if err != nil {
			return err
		}
		if line == "" {
			c.buf = append(c.buf, "\r\n"...)
			break
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.ToLower(name)
		if !ok || had[name] || had[trailerSignature] || len(had) > maxTrailers {
			return refuse("the trailers can't be read")
		}
		had[name] = true
		if name == trailerSignature && c.in != nil {
			if !same(c.in.trailer(Digest(signed.Bytes())), value) {
				return refuse("the signature of the trailers is not the one that the keys of the environment make of them")
			}
			c.buf = append(append(append(c.buf, line[:len(name)+1]...), c.out.trailer(Digest(signed.Bytes()))...), "\r\n"...)
			continue
		}
		if !slices.Contains(c.trailers, name) || !all(value, func(b byte) bool { return b >= ' ' && b < 0x7f }) {
			return refuse("a trailer was not declared, or has a value that none has")
		}
		signed.WriteString(name + ":" + fold(value) + "\n")
		c.buf = append(append(c.buf, line...), "\r\n"...)
	}
	if c.in != nil && !had[trailerSignature] {
		return refuse("the trailers are not signed")
	}
	return nil
}

// line reads one line, without its end.
func (c *chunks) line() (string, error) {
	line, err := c.src.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", refuse("a line among the chunks is longer than %d bytes", maxLine)
	case err != nil && len(line) > 0 && errors.Is(err, io.EOF):
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	case !bytes.HasSuffix(line, []byte("\r\n")):
		return "", refuse("a line among the chunks does not end as it should")
	}
	return string(line[:len(line)-2]), nil
}

// digested is a body whose digest was declared. It is one byte behind, so that
// an end is given only to a body that is the one which was signed.
type digested struct {
	src  io.Reader
	sum  hash.Hash
	want string
	held byte
	has  bool
	err  error // what the source ended with, once it has
}

// Read gives what came but for the last byte, and that at the end.
func (d *digested) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for d.err == nil {
		n, err := d.src.Read(p)
		_, _ = d.sum.Write(p[:n]) // a hash never fails
		d.err = err
		if errors.Is(err, io.EOF) && hex.EncodeToString(d.sum.Sum(nil)) != d.want {
			d.err = refuse("the body is not the one whose digest was signed")
		}
		if n == 0 {
			continue
		}
		last := p[n-1]
		if d.has {
			copy(p[1:n], p[:n-1])
			p[0] = d.held
		} else {
			n--
		}
		d.held, d.has = last, true
		if n > 0 {
			return n, nil
		}
	}
	if d.has && errors.Is(d.err, io.EOF) {
		d.has = false
		p[0] = d.held
		return 1, io.EOF
	}
	return 0, d.err
}
