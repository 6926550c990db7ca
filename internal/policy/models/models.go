// Package models says which model a request asks, and whether that is one of
// those allowed. It reads what Anthropic's, OpenAI's and Google's APIs take, and
// what other servers take that speak like one of them.
//
// Words. A glob is a model's name in which "*" stands for any run of characters.
// What names a model is the field model of the body, or for Google a segment of
// the path. A request that only reads (GET, HEAD) names none and passes.
//
// A request passes only when all that names a model in it is allowed and nothing
// in it can be read in two ways: keys given twice or in another spelling, another
// type of content, more after the document. Not promised: that a server answers
// with the model that was asked for, and anything about models that a server
// picks by itself, such as those of stored prompts.
package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBody is the most that is looked at: requests with pictures are large.
const MaxBody = 32 << 20

// glob is what a name of a model, or a pattern of them, looks like.
var glob = regexp.MustCompile(`^[A-Za-z0-9*][A-Za-z0-9*._:/@+-]{0,127}$`)

// Valid says whether text can be a glob.
func Valid(text string) bool { return glob.MatchString(text) }

// Match says whether one of the globs stands for the model.
func Match(globs []string, model string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return match(g, model) })
}

func match(glob, name string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(name, p)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// Within says whether all that inner stands for, one of outer does: a star of
// inner is only ever within a star of outer.
func Within(inner, outer []string) bool {
	return !slices.ContainsFunc(inner, func(g string) bool { return !Match(outer, g) })
}

// Request is what is looked at.
type Request struct {
	Method, Path, Query string // as sent
	Header              map[string][]string
	Body                []byte
}

// Errors say why a request does not pass. They quote nothing of it.
var (
	errAmbiguous = errors.New("it can't be told which model the request asks")
	errModel     = errors.New("the request asks a model that is not allowed")
)

// NeedsBody says whether the body of a request must be seen.
func NeedsBody(method string) bool { return method != "GET" && method != "HEAD" }

// Check says why a request does not pass; nil when it does.
func Check(globs []string, q Request) error {
	if len(globs) == 0 {
		return errModel
	}
	if namesModel(q.Query) || len(q.Header["Upgrade"]) > 0 {
		return errAmbiguous // of sessions whose frames nobody looks at, too
	}
	if !NeedsBody(q.Method) {
		return nil
	}
	if q.Method != "POST" {
		return errAmbiguous
	}
	if !JSON(q.Header) {
		return errAmbiguous
	}
	asked, err := fromPath(q.Path)
	if err != nil {
		return err
	}
	inBody, err := fromBody(q.Body)
	if err != nil {
		return err
	}
	for _, m := range inBody {
		if asked != "" {
			m = strings.TrimPrefix(m, "models/") // as Google's API writes it
		}
		if !Match(globs, m) {
			return errModel
		}
	}
	switch {
	case asked != "" && !Match(globs, asked):
		return errModel
	case asked == "" && len(inBody) == 0:
		return errAmbiguous
	}
	return nil
}

// namesModel says whether a query may name a model.
func namesModel(query string) bool {
	plain, err := url.QueryUnescape(query)
	return err != nil || strings.Contains(strings.ToLower(plain), "model")
}

// JSON says whether a body's headers say that it is JSON in UTF-8 and nothing
// else.
func JSON(header map[string][]string) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 {
		return false
	}
	kind, params, err := mime.ParseMediaType(types[0])
	if err != nil || kind != "application/json" {
		return false
	}
	for name, v := range params {
		if name != "charset" || !strings.EqualFold(v, "utf-8") {
			return false
		}
	}
	return true
}

// fromPath is the model that a path names, as those of Google, of clouds and of
// older APIs do; empty when it names none. Of Google's verbs only those pass that
// ask the model of the path alone.
func fromPath(path string) (string, error) {
	model := ""
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.Contains(s, ":") && (i == 0 || !modelFolder(segments[i-1])) {
			return "", errAmbiguous
		}
		if !modelFolder(s) || i == len(segments)-1 {
			continue
		}
		name, verb, said := strings.Cut(segments[i+1], ":")
		verbs := []string{"generateContent", "streamGenerateContent", "countTokens", "predict", "rawPredict", "streamRawPredict"}
		if model != "" || name == "" || strings.ContainsAny(name, "%*") || said && !slices.Contains(verbs, verb) {
			return "", errAmbiguous
		}
		model = name
	}
	return model, nil
}

// modelFolder says whether the segment after this one names a model.
func modelFolder(segment string) bool {
	return slices.Contains([]string{"models", "tunedModels", "model", "deployments", "engines"}, segment)
}

// fromBody are the models that a JSON document names: in the field model, which
// may be missing, and in those of its tools.
func fromBody(body []byte) ([]string, error) {
	if !utf8.Valid(body) || len(body) > MaxBody {
		return nil, errAmbiguous
	}
	var named []string
	err := Object(body, func(key string, value json.RawMessage) error {
		switch lower := strings.ToLower(key); {
		case lower == "model" && key == "model":
			m, err := word(value)
			named = append(named, m)
			return err
		case key == "tools":
			return tools(value, &named)
		// Other models to take in its place, as some gateways know them.
		case lower == "model", lower == "tools", lower == "models", strings.Contains(lower, "fallback"), lower == "route":
			return errAmbiguous
		}
		return nil
	})
	return named, err
}

// tools finds models that tools of a request ask in their turn.
func tools(value json.RawMessage, named *[]string) error {
	if string(value) == "null" {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil {
		return errAmbiguous
	}
	for _, tool := range list {
		err := Object(tool, func(key string, value json.RawMessage) error {
			if !strings.EqualFold(key, "model") {
				return nil
			}
			m, err := word(value)
			*named = append(*named, m)
			return err
		})
		if err != nil {
			return errAmbiguous
		}
	}
	return nil
}

// word is a JSON string that no reader takes for another one.
func word(value json.RawMessage) (string, error) {
	var s string
	if len(value) == 0 || value[0] != '"' || bytes.ContainsRune(value, '\\') || json.Unmarshal(value, &s) != nil || s == "" {
		return "", errAmbiguous
	}
	return s, nil
}

// plainKey is what a key looks like that is the same to everyone.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_$.-]{1,128}$`)

// Object calls each with the fields of a JSON object. It fails for what is not
// one object alone, for a key that is given twice, and for one that somebody may
// take for another one.
func Object(document []byte, each func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(document))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errAmbiguous
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok || !plainKey.MatchString(name) || seen[strings.ToLower(name)] {
			return errAmbiguous
		}
		seen[strings.ToLower(name)] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return errAmbiguous
		}
		if err := each(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errAmbiguous
	}
	if rest := bytes.TrimLeft(document[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return errAmbiguous
	}
	return nil
}
