// Package strict is the form of requests to the API: JSON that two readers can not
// understand differently. A key that stands twice, a key in another case than the
// documented one, and anything after the document are refused.
package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// JSON is the format of requests and answers. What is refused in a request is
// said by its path, such as body.agent.name.
func JSON() huma.Format {
	return huma.Format{Marshal: writeJSON, Unmarshal: readJSON}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func readJSON(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	if _, generic := v.(*any); generic {
		return noRepeats(json.NewDecoder(bytes.NewReader(data)), "body")
	}
	var raw any
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	return exactKeys(raw, reflect.TypeOf(v), "body")
}

// noRepeats refuses an object that has the same key twice.
func noRepeats(d *json.Decoder, path string) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for n := 0; d.More(); n++ {
		at := fmt.Sprintf("%s[%d]", path, n)
		if delim == '{' {
			t, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := t.(string)
			at = path + "." + key
			if seen[key] {
				return fmt.Errorf("%s stands twice", at)
			}
			seen[key] = true
		}
		if err := noRepeats(d, at); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// exactKeys refuses keys that are not exactly the names of t's fields;
// encoding/json would take them in any case.
func exactKeys(raw any, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := raw.(type) {
	case []any:
		if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
			for i, e := range v {
				if err := exactKeys(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return nil
		}
		fields := map[string]reflect.Type{}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = f.Type
		}
		for key, e := range v {
			ft, ok := fields[key]
			if !ok || key == "" {
				return fmt.Errorf("%s.%s: no such field", path, key)
			}
			if err := exactKeys(e, ft, path+"."+key); err != nil {
				return err
			}
		}
	}
	return nil
}
