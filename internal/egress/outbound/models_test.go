package outbound

import (
	"net/http"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What the loop's requests use is on record by the code that counts a sandbox's.
func TestModelsAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		method, path string
		want         *task.ModelTokens
	}{
		{http.MethodPost, "/v1/messages", &task.ModelTokens{Input: 1, Output: 4, Estimated: true}}, // its answer says nothing
		{http.MethodPost, "/v1/other", nil},
		{http.MethodGet, "/v1/messages", nil},
	} {
		if body, reason := w.do(c.method, w.url+c.path, nil); reason != "" {
			t.Fatalf("%s: %s", body, reason)
		}
		i := w.find(func(r task.EgressRecord) bool { return r.Done && r.Path == c.path && r.Method == c.method })
		if i < 0 {
			t.Fatalf("%s %s has no end on record", c.method, c.path)
		}
		if got := w.records[i].Tokens; (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s %s: %+v, want %+v", c.method, c.path, got, c.want)
		}
	}
}
