//go:build root

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

// The receipt says what was lent for what, from when until when and how often it
// was used, and what was reached; it verifies without a server, and its account
// is told.
func TestReceiptListsWhatWasLent(t *testing.T) {
	k, e := serveKeyed(t)
	k.addKey(t, e)
	got := run(t, e, k.task(bundle(t, e, small(t)), "", `set -u
for i in 1 2; do curl -sf -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/with; done
curl -sf -m 60 https://api.test:PORT/ok/without
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/elsewhere; echo
echo 42 > answer.txt
`))
	must(t, e, got, api.Succeeded, "")
	receipt := stdout(t, e, "task", "receipt", got.ID)
	var doc struct {
		Body struct {
			Lent []struct {
				Credential, Kind, Stage, Why string
				Hosts                        []string
				Uses                         int
				Given                        bool
				Until                        string
			}
			Reached []struct {
				Stage, Host           string
				Connections, Requests int
			}
		}
	}
	if err := json.Unmarshal(receipt, &doc); err != nil {
		t.Fatal(err)
	}
	b := doc.Body
	if len(b.Lent) != 1 || b.Lent[0].Credential != "key" || b.Lent[0].Stage != "agent" || b.Lent[0].Uses != 3 || !b.Lent[0].Given || b.Lent[0].Until == "" || b.Lent[0].Why != "stage" {
		t.Errorf("lent %+v", b.Lent)
	}
	if len(b.Reached) != 1 || b.Reached[0].Host != "api.test" || b.Reached[0].Stage != "agent" || b.Reached[0].Requests != 3 || b.Reached[0].Connections < 1 {
		t.Errorf("reached %+v", b.Reached)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"receipt": receipt, "key": stdout(t, e, "audit", "key")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// How wide its columns are depends on what stands in them.
	told := strings.Join(strings.Fields(string(stdout(t, e, "audit", "verify", "--key", filepath.Join(dir, "key"), "--show", filepath.Join(dir, "receipt")))), " ")
	for _, want := range []string{"verified: task " + got.ID, "reachable agent", "reached agent api.test", "lent agent key (header) at api.test", "3 uses"} {
		if !strings.Contains(told, want) {
			t.Errorf("without %q:\n%s", want, told)
		}
	}
}
