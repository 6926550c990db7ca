package strict

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// head is what frames a request.
type head struct {
	length  int64
	chunked bool
}

// parseHead reads a whole head, without the empty line that ends it.
func parseHead(b []byte) (head, error) {
	text := string(b)
	lines := strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n")
	target, version, err := requestLine(lines[0])
	if err != nil {
		return head{}, err
	}
	f := fields{version: version, length: -1}
	for _, line := range lines[1:] {
		name, value, err := field(line)
		if err != nil {
			return head{}, err
		}
		if err := f.add(strings.ToLower(name), value); err != nil {
			return head{}, err
		}
	}
	if err := f.check(target); err != nil {
		return head{}, err
	}
	return head{length: max(f.length, 0), chunked: f.chunked}, nil
}

// requestLine reads "METHOD target HTTP/1.x" with single spaces (RFC 9112 §3).
func requestLine(line string) (target, version string, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !httpguts.ValidHeaderFieldName(parts[0]) || parts[1] == "" {
		return "", "", errors.New("request line")
	}
	if parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return "", "", errors.New("version")
	}
	for i := range len(parts[1]) {
		if ch := parts[1][i]; ch <= ' ' || ch >= 0x7f || ch == '#' {
			return "", "", errors.New("request target")
		}
	}
	return parts[1], parts[2], nil
}

// field reads "name: value". A line that begins with a space would go on from
// the one before (RFC 9112 §5.2).
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", "", errors.New("header field name")
	}
	value = strings.Trim(value, " \t")
	if !httpguts.ValidHeaderFieldValue(value) {
		return "", "", fmt.Errorf("value of %.40q", name)
	}
	return name, value, nil
}

// fields gathers what frames a message and says where it goes.
type fields struct {
	version string
	hosts   []string
	length  int64 // -1: not given
	chunked bool
}

func (f *fields) add(name, value string) error {
	switch name {
	case "host":
		f.hosts = append(f.hosts, value)
	case "content-length":
		n, err := decimal(value)
		if err != nil || f.length >= 0 {
			return errors.New("Content-Length")
		}
		f.length = n
	case "transfer-encoding":
		if f.chunked || !strings.EqualFold(value, "chunked") || f.version != "HTTP/1.1" {
			return errors.New("Transfer-Encoding")
		}
		f.chunked = true
	}
	return nil
}

func (f *fields) check(target string) error {
	switch {
	case f.chunked && f.length >= 0:
		return errors.New("both Transfer-Encoding and Content-Length")
	case len(f.hosts) > 1, len(f.hosts) == 0 && f.version == "HTTP/1.1":
		return errors.New("Host must be there once")
	}
	// The authority of an absolute target counts, and Host must not say another.
	scheme, rest, absolute := strings.Cut(target, "://")
	if absolute && !strings.HasPrefix(target, "/") && len(f.hosts) == 1 {
		authority := rest
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			authority = rest[:i]
		}
		if scheme == "" || !strings.EqualFold(authority, f.hosts[0]) {
			return errors.New("the target's host and Host disagree")
		}
	}
	return nil
}

// decimal reads digits and nothing else.
func decimal(s string) (int64, error) {
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.ParseInt(s, 10, 64)
}

// chunkSize reads the size of a chunk; an extension after it means nothing
// (RFC 9112 §7.1.1).
func chunkSize(line []byte) (int64, error) {
	digits, extension, _ := strings.Cut(string(line), ";")
	if !httpguts.ValidHeaderFieldValue(extension) {
		return 0, errors.New("chunk extension")
	}
	if digits == "" || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, errors.New("chunk size")
	}
	return strconv.ParseInt(digits, 16, 64)
}

// trailer judges a field after the body: none may frame or route.
func trailer(line []byte) error {
	name, _, err := field(string(line))
	if err != nil {
		return err
	}
	switch strings.ToLower(name) {
	case "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect", "authorization", "cookie":
		return errors.New("field that may not trail")
	}
	return nil
}
