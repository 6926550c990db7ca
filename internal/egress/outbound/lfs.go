package outbound

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const lfsMax = 4 << 20 // of a question to Git LFS or an answer, as JSON

// lfs reads a request to Git LFS beneath a repository, and says how many
// segments at the end of the path are its own. What is not known is not its.
func (c *gitCall) lfs(method, query string, segments []string) (own int, ok bool) {
	at := len(segments)
	for i := len(segments) - 2; i > 0; i-- {
		if segments[i] == "info" && segments[i+1] == "lfs" {
			at = i
			break
		}
	}
	if at == len(segments) {
		return 0, false
	}
	rest := segments[at+2:]
	own = len(segments) - at
	object := len(rest) >= 2 && len(rest) <= 3 && rest[0] == "objects" && isOID(rest[1])
	switch {
	case slices.Equal(rest, []string{"objects", "batch"}):
		c.batch = true
		return own, method == http.MethodPost && query == ""
	case object && (method == http.MethodGet || method == http.MethodHead):
		return own, query == ""
	case object && (method == http.MethodPut || method == http.MethodPost && len(rest) == 3 && rest[2] == "verify"),
		slices.Equal(rest, []string{"verify"}) && method == http.MethodPost,
		len(rest) > 0 && len(rest) <= 3 && rest[0] == "locks" && (method == http.MethodGet || method == http.MethodPost):
		c.writes = true
		return own, query == "" || method == http.MethodGet
	}
	return 0, false
}

func isOID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

var errLFS = errors.New("not a plain question to Git LFS for objects to download")

// downloads reads a batch request and says whether it asks for objects to
// download and for nothing else. The body is put back.
func downloads(out *http.Request) error {
	media, params, err := mime.ParseMediaType(out.Header.Get("Content-Type"))
	charset, has := params["charset"]
	if err != nil || media != "application/vnd.git-lfs+json" || has && !strings.EqualFold(charset, "utf-8") || len(out.Header["Content-Encoding"]) > 0 || out.Body == nil {
		return errLFS
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, lfsMax+1))
	if err != nil || len(body) > lfsMax || !downloadOnly(body) {
		return errLFS
	}
	out.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), out.Body}
	return nil
}

// downloadOnly says whether every reader of the JSON finds the operation
// "download": it stands there once, in one spelling.
func downloadOnly(body []byte) bool {
	if !json.Valid(body) { // one value and nothing behind it
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	found := false
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return false
		}
		if !strings.EqualFold(strings.TrimSpace(name), "operation") {
			continue
		}
		if found || name != "operation" || string(value) != `"download"` {
			return false
		}
		found = true
	}
	return found
}

// swapBack replaces texts in an answer: in the texts of its JSON, or in its
// bytes where it is none.
func swapBack(res *http.Response, swap *strings.Replacer) error {
	if coding := res.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return errors.New("an answer of Git LFS that can't be read")
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, lfsMax+1))
	if err != nil || len(body) > lfsMax {
		return errors.Join(errors.New("an answer of Git LFS that broke off or is too long"), res.Body.Close())
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if json.Valid(body) && d.Decode(&tree) == nil {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(swapped(tree, swap)); err != nil {
			return errors.Join(errors.New("an answer of Git LFS that can't be written"), res.Body.Close())
		}
		body = out.Bytes()
	} else {
		body = []byte(swap.Replace(string(body)))
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), res.Body}
	res.ContentLength = int64(len(body))
	if res.Header.Get("Content-Length") != "" {
		res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

// swapped replaces in every text of a JSON value.
func swapped(value any, swap *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return swap.Replace(v)
	case []any:
		for i := range v {
			v[i] = swapped(v[i], swap)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			out[swap.Replace(name)] = swapped(one, swap)
		}
		return out
	}
	return value
}
