package meter

import (
	"net/http"
	"strings"
)

// Kind is a shape of requests and their answers.
type Kind uint8

// The kinds.
const (
	Free      Kind = iota // nothing is charged for, as far as is known: reading lists, counting tokens
	Messages              // Anthropic's
	Chat                  // OpenAI's chat completions, completions and embeddings
	Responses             // OpenAI's
	Generate              // Google's
	Uncounted             // may cost, and can't be counted here
)

// Counted says whether answers of the kind tell what they used.
func (k Kind) Counted() bool { return k != Free && k != Uncounted }

// KindOf tells the kind of a request by its method, path and header. Servers put
// these paths beneath others, so their ends count.
func KindOf(method, path string, header http.Header) Kind {
	if header.Get("Upgrade") != "" {
		return Uncounted // WebSocket
	}
	if method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodDelete {
		return Free
	}
	path = strings.TrimRight(path, "/")
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		if _, verb, ok := strings.Cut(path[i:], ":"); ok {
			switch verb {
			case "generateContent", "streamGenerateContent":
				return Generate
			case "countTokens":
				return Free
			}
			return Uncounted
		}
	}
	for _, end := range []struct {
		text string
		kind Kind
	}{
		{"/messages", Messages},
		{"/messages/count_tokens", Free},
		{"/completions", Chat}, // those of chats too
		{"/embeddings", Chat},
		{"/responses", Responses},
		{"/responses/compact", Responses},
		{"/responses/input_tokens", Free},
	} {
		if strings.HasSuffix(path, end.text) {
			return end.kind
		}
	}
	return Uncounted
}

// pathModel is the model that a path of Google's names.
func pathModel(path string) string {
	_, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, ":")
	return clean(name)
}

// clean is a model's name as it may be kept: what comes from outside is cut, and
// nothing but what stands in names of models is left.
func clean(name string) string {
	name = strings.TrimPrefix(name, "models/")
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || i >= longestName {
			return name[:i]
		}
	}
	return name
}

const longestName = 128
