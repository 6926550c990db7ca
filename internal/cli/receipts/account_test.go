package receipts

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
)

// Whatever a receipt says of the outside is told, and nothing of it can act on a
// terminal.
func TestAccountIsTold(t *testing.T) {
	var b audit.Body
	if err := json.Unmarshal([]byte(`{
		"grants":[{"stage":"agent","sandbox":"sb-a","rules":[{"id":"agent.network.allow[0]","host":"a.test","ports":[443,8443],"methods":["GET"],"paths":["/v1/**"],"credential":"key"}]},
			{"stage":"agent","sandbox":"sb-b","rules":[{"id":"agent.network.allow[0]","host":"a.test","ports":[443,8443],"methods":["GET"],"paths":["/v1/**"],"credential":"key"}]}],
		"reached":[{"sandbox":"sb-a","stage":"agent","host":"a.test\u001b[2J","port":443,"connections":2,"requests":3,"bytesIn":10,"bytesOut":20}],
		"lent":[{"lease":"l-a","credential":"key","kind":"git","stage":"agent","settings":{"repository":"o/r","push":"no"},"hosts":["a.test"],"ports":[443],"methods":["GET"],
			"from":"2026-03-01T12:00:00Z","until":"2026-03-01T12:02:00Z","why":"stage","given":true,"uses":5},
			{"lease":"l-b","credential":"idle","kind":"header","stage":"setup","hosts":["b.test"],"ports":[443],"from":"2026-03-01T12:00:00Z"}],
		"approvals":[{"approval":"a-1","kind":"egress","stage":"agent","askedAt":"2026-03-01T12:00:00Z","state":"allowed","by":"alice","scope":"once"}],
		"handedOver":[{"stage":"agent","lease":"l-c","audience":"sts.amazonaws.com","tokens":2,"from":"2026-03-01T12:00:00Z","until":"2026-03-01T12:10:00Z"}]}`), &b); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tellAccount(&b, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"reachable    agent", "a.test 443,8443", "GET, /v1/**, credential key, by agent.network.allow[0]",
		"2 connections, 3 requests, 10 bytes in, 20 out",
		"key (git)", "at a.test 443, push=no repository=o/r, GET, from 2026-03-01T12:00:00Z to 2026-03-01T12:02:00Z (stage), 5 uses",
		"idle (header)", "not ended, never given",
		"asked        agent  egress", "allowed by alice, scope once",
		"handed over  agent  identity for sts.amazonaws.com", "2 tokens",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "reachable") != 1 {
		t.Errorf("%q", text)
	}
	out.Reset()
	if err := tellAccount(&audit.Body{Lent: []audit.Lent{}, Grants: []audit.Reach{{Rules: json.RawMessage(`7`)}}}, &out); err != nil || !strings.HasPrefix(out.String(), "nothing") {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	if err := tellAccount(&audit.Body{EndedAt: time.Now()}, &out); err != nil || !strings.Contains(out.String(), "not counted") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
