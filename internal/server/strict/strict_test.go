package strict

import (
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"argv":["a"],"env":{"A":"b","a":"c"}}`))
	f.Add([]byte(`{"argv":["a"],"Argv":["b"]}`))
	f.Add([]byte(`{"argv":["a"],"argv":["b"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var generic any
		var typed api.ExecRequest
		if readJSON(data, &generic) != nil || readJSON(data, &typed) != nil {
			return
		}
		// What the schema was checked against is what the handler gets.
		object, ok := generic.(map[string]any)
		if !ok {
			return // null, refused by the schema
		}
		for key := range object {
			switch key {
			case "id", "argv", "dir", "env", "timeoutSeconds", "wait":
			default:
				t.Errorf("key %q went through", key)
			}
		}
		if id, ok := object["id"].(string); ok && id != typed.ID {
			t.Errorf("id %q was checked, %q taken", id, typed.ID)
		}
	})
}
