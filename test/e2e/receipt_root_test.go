//go:build root

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// Whatever is done to a receipt or to the exported account is found, by the
// command line, without the data folder.
func TestTamperedReceiptsAreFound(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	other := testenv.Start(t, testenv.Config{})
	source := bundle(t, e, small(t))
	var receipts [][]byte
	for range 2 {
		got := run(t, e, api.TaskRequest{Repo: source, Agent: sh("echo 42 > answer.txt"), Verify: "./check.sh"})
		must(t, e, got, api.Succeeded, "")
		receipts = append(receipts, stdout(t, e, "task", "receipt", got.ID))
	}
	export := stdout(t, e, "audit", "export")
	key, foreign := stdout(t, e, "audit", "key"), stdout(t, other, "audit", "key")

	dir := t.TempDir()
	write := func(name string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	verify := func(key []byte, receipt []byte, export []byte) (string, error) {
		args := []string{"audit", "verify", "--key", write("key", key)}
		if export != nil {
			args = append(args, "--log", write("log", export))
		}
		if receipt != nil {
			args = append(args, write("receipt", receipt))
		}
		cmd := e.Command(args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir} // no server, no data folder
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := verify(key, receipts[1], export); err != nil {
		t.Fatalf("the untouched receipt: %v\n%s", err, out)
	}

	records := func(change func(list []any) []any) []byte {
		var doc map[string]any
		d := json.NewDecoder(bytes.NewReader(receipts[1]))
		d.UseNumber()
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		list, ok := doc["records"].([]any)
		if !ok || len(list) < 4 {
			t.Fatalf("the receipt has no list of records: %.300s", receipts[1])
		}
		doc["records"] = change(list)
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(export))+"\n", "\n")
	lines = lines[:len(lines)-1]
	without := func(i int) []byte {
		return []byte(strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), ""))
	}
	for _, c := range []struct {
		name            string
		key             []byte
		receipt, export []byte
	}{
		{"tail of the receipt cut", key, records(func(l []any) []any { return l[:len(l)-1] }), nil},
		{"head of the receipt cut", key, records(func(l []any) []any { return l[1:] }), nil},
		{"order changed", key, records(func(l []any) []any { l[1], l[2] = l[2], l[1]; return l }), nil},
		{"record altered", key, bytes.Replace(receipts[1], []byte("checkout"), []byte("checkouT"), 1), nil},
		{"bytes cut", key, receipts[1][:len(receipts[1])/2], nil},
		{"signed with another key", foreign, receipts[1], nil},
		{"no key", nil, receipts[1], nil},
		{"record deleted from the log", key, nil, without(2)},
		{"log's tail cut", key, receipts[1], []byte(strings.Join(lines[:len(lines)/2], ""))},
		{"log's order changed", key, nil, []byte(strings.Join(append([]string{lines[1], lines[0]}, lines[2:]...), ""))},
		{"task deleted from the log", key, nil, taskDeleted(lines, receipts[0])},
		{"log signed with another key", foreign, nil, export},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := verify(c.key, c.receipt, c.export)
			if err == nil {
				t.Errorf("it verifies:\n%s", out)
			}
			if strings.TrimSpace(out) == "" {
				t.Error("nothing says what is wrong")
			}
		})
	}
}

// taskDeleted leaves out every line of the export that names the receipt's task.
func taskDeleted(lines []string, receipt []byte) []byte {
	var body struct {
		Body struct {
			Task string `json:"task"`
			ID   string `json:"id"`
		} `json:"body"`
	}
	_ = json.Unmarshal(receipt, &body)
	id := body.Body.Task + body.Body.ID
	if i := bytes.Index(receipt, []byte("t-")); len(id) < 18 && i >= 0 {
		id = string(receipt[i : i+18])
	}
	var b strings.Builder
	for _, l := range lines {
		if !strings.Contains(l, id) {
			b.WriteString(l)
		}
	}
	return []byte(b.String())
}

// stdout runs the command line and returns what it printed.
func stdout(t testing.TB, e *testenv.Env, args ...string) []byte {
	t.Helper()
	cmd := e.Command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cofferdam %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out
}
