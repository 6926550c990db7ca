package traffic

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const allowed, denied = "allowed", "denied"

// conn and its end, request and its end.
func begun(conn int64, host string) task.EgressRecord {
	return task.EgressRecord{Conn: conn, Stage: task.Agent, Name: host, Port: 443, Verdict: allowed}
}

func ended(conn int64, host string, in int64, reason task.Reason) task.EgressRecord {
	return task.EgressRecord{Conn: conn, Done: true, Stage: task.Agent, Name: host, Port: 443, Verdict: allowed, BytesIn: in, BytesOut: in / 10, Reason: reason}
}

func asked(conn, n int64, host, lease string) task.EgressRecord {
	return task.EgressRecord{Conn: conn, Request: n, Stage: task.Agent, Name: host, Port: 443, Verdict: allowed, Lease: lease}
}

func answered(conn, n int64, host, lease string, status int, reason task.Reason) task.EgressRecord {
	return task.EgressRecord{Conn: conn, Request: n, Done: true, Stage: task.Agent, Name: host, Port: 443, Verdict: allowed, Lease: lease, Status: status, Reason: reason, BytesIn: 7}
}

func TestTally(t *testing.T) {
	refused := begun(9, "no.test")
	refused.Verdict, refused.Reason = denied, task.PolicyDenied
	tallied := refused
	tallied.Count = 400
	literal := begun(10, "")
	literal.Address, literal.Port = "192.0.2.7", 22
	setup := begun(11, "a.test")
	setup.Stage = task.Setup
	login := begun(12, "db.test")
	login.Lease, login.Protocol = "l-db", "postgres"
	loggedOut := ended(12, "db.test", 90, task.PolicyCredential) // revoked while it lasted
	loggedOut.Lease, loggedOut.Verdict = "l-db", denied
	never := begun(13, "db.test")
	never.Lease = "l-db"
	noLogin := ended(13, "db.test", 0, task.EgressUnreachable)
	noLogin.Lease = "l-db"
	refusedRequest := asked(1, 5, "a.test", "")
	refusedRequest.Verdict = denied
	var all Tally
	for _, r := range []task.EgressRecord{
		begun(1, "a.test"), begun(1, "a.test"), // two addresses were tried
		asked(1, 1, "a.test", "l-a"), answered(1, 1, "a.test", "l-a", 200, ""),
		asked(1, 2, "a.test", "l-a"), answered(1, 2, "a.test", "l-a", 0, task.InfraControlAway), // not lent
		asked(1, 3, "a.test", "l-a"), answered(1, 3, "a.test", "l-a", 0, task.EgressUntrusted), // not sent
		asked(1, 4, "a.test", ""), answered(1, 4, "a.test", "", 404, ""), refusedRequest,
		asked(1, 6, "a.test", "l-a"), // the gateway was killed here
		ended(1, "a.test", 1000, ""),
		begun(2, "dead.test"), ended(2, "dead.test", 0, task.EgressUnreachable),
		refused, tallied, literal, setup, login, loggedOut, never, noLogin,
		begun(20, "self-test."+task.Reserved), asked(20, 1, "self-test."+task.Reserved, "l-a"), answered(20, 1, "self-test."+task.Reserved, "l-a", 200, ""),
		asked(21, 1, task.TokenHost, "l-run"), answered(21, 1, task.TokenHost, "l-run", 200, ""),
		ended(77, "ghost.test", 5, ""), // of which nothing was recorded
	} {
		all.Add(r)
	}
	s := all.Sum()
	want := []Reached{
		{Stage: task.Agent, Host: "192.0.2.7", Port: 22, Connections: 1},
		{Stage: task.Agent, Host: "a.test", Port: 443, Connections: 1, Requests: 5, BytesIn: 1000, BytesOut: 100},
		{Stage: task.Agent, Host: "db.test", Port: 443, Connections: 1, BytesIn: 90, BytesOut: 9},
		{Stage: task.Setup, Host: "a.test", Port: 443, Connections: 1},
	}
	if !slices.Equal(s.Reached, want) || s.More != 0 {
		t.Errorf("reached %+v, %d more", s.Reached, s.More)
	}
	if want := (map[string]int64{"l-a": 2, "l-db": 1, "l-run": 1}); !maps.Equal(s.Uses, want) {
		t.Errorf("uses %v, want %v", s.Uses, want)
	}
}

func TestTallyIsBounded(t *testing.T) {
	var all Tally
	for i := range int64(MostReached + 30) {
		all.Add(begun(i, fmt.Sprintf("h%04d.test", i)))
	}
	if s := all.Sum(); len(s.Reached) != MostReached || s.More != 30 || s.Uses != nil {
		t.Errorf("%d listed, %d more", len(s.Reached), s.More)
	}
	var none Tally
	if s := none.Sum(); s.Reached != nil || s.Uses != nil {
		t.Errorf("nothing was counted, and there is %+v", s)
	}
}
