package outbound

import (
	"net/http"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// A login of Codex is for its own account, whatever the program inside says.
func TestLoginCarrier(t *testing.T) {
	lease := task.Lease{Kind: task.KindCodexLogin, Header: "Authorization", Prefix: "Bearer ", Settings: map[string]string{task.SettingAccount: "acc-1"}}
	for name, c := range map[string]struct {
		header http.Header
		passes bool
	}{
		"as Codex sends it":      {http.Header{"Authorization": {"Bearer " + standIn}, "Chatgpt-Account-Id": {"acc-1"}}, true},
		"without the account":    {http.Header{"Authorization": {"Bearer " + standIn}}, true},
		"without anything":       {http.Header{}, true},
		"another account":        {http.Header{"Authorization": {"Bearer " + standIn}, "Chatgpt-Account-Id": {"acc-2"}}, false},
		"two accounts":           {http.Header{"Chatgpt-Account-Id": {"acc-1", "acc-2"}}, false},
		"the token as account":   {http.Header{"Chatgpt-Account-Id": {standIn}}, false},
		"another token":          {http.Header{"Authorization": {"Bearer another"}, "Chatgpt-Account-Id": {"acc-1"}}, false},
		"another key beside it":  {http.Header{"Authorization": {"Bearer " + standIn}, "X-Api-Key": {"k"}}, false},
		"the account as Bearer":  {http.Header{"Authorization": {"Bearer acc-1"}}, false},
		"the placeholder beside": {http.Header{"X-Other": {standIn}}, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+lentHost+"/responses", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = c.header
		out := sent(t, gateOf(lease), r, "REALVALUE")
		if (out != nil) != c.passes {
			t.Errorf("%s: passes %v", name, out != nil)
			continue
		}
		if out != nil && (out.Header.Get("Authorization") != "Bearer REALVALUE" || len(out.Header["Chatgpt-Account-Id"]) != 1 || out.Header.Get("Chatgpt-Account-Id") != "acc-1") {
			t.Errorf("%s: %v", name, out.Header)
		}
	}
	for name, settings := range map[string]map[string]string{"no account": nil, "an account that no header carries": {task.SettingAccount: "a\nb"}} {
		bad := lease
		bad.Settings = settings
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+lentHost+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if sent(t, gateOf(bad), r, "REALVALUE") != nil {
			t.Errorf("%s: it is lent", name)
		}
	}
}
