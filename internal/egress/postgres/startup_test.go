package postgres

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cofferdam/cofferdam/internal/task"
)

// begin makes a start-up of pairs.
func begin(version string, pairs ...string) []byte {
	return []byte(version + strings.Join(pairs, "\x00") + "\x00\x00")
}

const v3 = "\x00\x03\x00\x00"

func TestPackets(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want packet
	}{
		"TLS":    {[]byte("\x04\xd2\x16\x2f"), packet{tls: true}},
		"GSS":    {[]byte("\x04\xd2\x16\x30"), packet{gss: true}},
		"cancel": {[]byte("\x04\xd2\x16\x2e\x00\x00\x01\x02\xff\xff\xff\xfe"), packet{cancel: &Key{0x102, 0xfffffffe}}},
		"user":   {begin(v3, "user", "u"), packet{startup: &Startup{User: "u", Database: "u"}}},
		"an empty value": {
			begin(v3, "user", "u", "application_name", ""),
			packet{startup: &Startup{User: "u", Database: "u", Settings: []Setting{{"application_name", ""}}}},
		},
		"all": {
			begin("\x00\x03\x00\x02", "database", "d", "user", "u", "application_name", "psql", "_pq_.x", "1", "options", "-c a=1 --b-c=2 -cd=3", "a.b", "c"),
			packet{startup: &Startup{
				User: "u", Database: "d", Minor: 2, Unknown: []string{"_pq_.x"},
				Settings: []Setting{{"application_name", "psql"}, {"options", "-c a=1 --b-c=2 -cd=3"}, {"a.b", "c"}},
			}},
		},
	} {
		got, err := parsePacket(c.body)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, body := range map[string][]byte{
		"nothing":             {},
		"a code alone":        []byte(v3),
		"another code":        []byte("\x04\xd2\x16\x2d"),
		"version 4":           begin("\x00\x04\x00\x00", "user", "u"),
		"no end":              []byte(v3 + "user\x00u\x00"),
		"no value":            []byte(v3 + "user\x00\x00"),
		"bytes after the end": append(begin(v3, "user", "u"), 'x'),
		"TLS and more":        []byte("\x04\xd2\x16\x2fx"),
		"a short key":         []byte("\x04\xd2\x16\x2e\x00\x00\x01\x02"),
		"a long key":          append([]byte("\x04\xd2\x16\x2e"), make([]byte, 36)...),
	} {
		if got, err := parsePacket(body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct {
		body        []byte
		state, text string
	}{
		"no user":         {begin(v3, "database", "d"), "28000", "no user"},
		"two users":       {begin(v3, "user", "a", "user", "b"), "08P01", "twice"},
		"two databases":   {begin(v3, "user", "a", "database", "b", "database", "c"), "08P01", "twice"},
		"two spellings":   {begin(v3, "user", "a", "TimeZone", "b", "timezone", "c"), "08P01", "twice"},
		"replication":     {begin(v3, "user", "a", "replication", "database"), "28000", "replication"},
		"replication off": {begin(v3, "user", "a", "replication", "off"), "28000", "replication"},
		"another server":  {begin(v3, "user", "a", "options", "endpoint=x"), "28000", "options"},
		"a flag":          {begin(v3, "user", "a", "options", "-c a=1 -d 5"), "28000", "options"},
		"no setting":      {begin(v3, "user", "a", "options", "-c a"), "28000", "options"},
		"-c alone":        {begin(v3, "user", "a", "options", "-c"), "28000", "options"},
		"an escape":       {begin(v3, "user", "a", "options", `-c a=\\ -d x`), "28000", "options"},
		"no name":         {begin(v3, "user", "a", "a b", "c"), "08P01", "not the name"},
		"a capital user":  {begin(v3, "user", "a", "User ", "c"), "08P01", "not the name"},
		"protocol 2":      {[]byte("\x00\x02\x00\x00" + strings.Repeat("\x00", 288)), "0A000", "protocol 2"},
	} {
		var r *Refusal
		if _, err := parsePacket(c.body); !errors.As(err, &r) || r.State != c.state || !strings.Contains(r.Text, c.text) || r.Reason != task.PolicyProtocol {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string]string{"short": "\x00\x00\x00\x07abc", "long": "\x00\x00\x27\x11", "endless": "\xff\xff\xff\xff", "cut off": "\x00\x00\x00\x0a\x00\x03", "nothing": ""} {
		if p, err := readPacket(strings.NewReader(b), nil); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// What we ask a server for is what pgx's server reads.
func TestStartupIsRead(t *testing.T) {
	s := Startup{User: "app ro", Database: "orders", Settings: []Setting{{"application_name", "psql"}, {"client_encoding", ""}}, Minor: 2, Unknown: []string{"_pq_.x"}}
	m, err := pgproto3.NewBackend(bytes.NewReader(s.append(nil)), nil).ReceiveStartupMessage()
	got, ok := m.(*pgproto3.StartupMessage)
	if err != nil || !ok || got.ProtocolVersion != pgproto3.ProtocolVersion30 || !reflect.DeepEqual(got.Parameters, map[string]string{
		"user": "app ro", "database": "orders", "application_name": "psql", "client_encoding": "",
	}) {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = pgproto3.NewBackend(bytes.NewReader(appendCode(nil, codeTLS)), nil).ReceiveStartupMessage()
	if _, ok := m.(*pgproto3.SSLRequest); !ok || err != nil {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = pgproto3.NewBackend(bytes.NewReader(appendCode(nil, codeCancel, 7, 9)), nil).ReceiveStartupMessage()
	if c, ok := m.(*pgproto3.CancelRequest); !ok || err != nil || c.ProcessID != 7 {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzStartup reads packets: what is read and asked for again is the same, and
// holds nothing that would mean something else to a server.
func FuzzStartup(f *testing.F) {
	for _, s := range [][]byte{
		begin(v3, "user", "u"), begin(v3, "user", "u", "database", "d", "options", "-c a=1"), begin("\x00\x03\x00\x02", "user", "u", "_pq_.x", ""),
		appendCode(nil, codeTLS)[4:], appendCode(nil, codeGSS)[4:], appendCode(nil, codeCancel, 1, 2)[4:], []byte("\x00\x02\x00\x00"), nil,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := parsePacket(body)
		if err != nil {
			return
		}
		kinds := []bool{p.tls, p.gss, p.cancel != nil, p.startup != nil}
		if i := slices.Index(kinds, true); i < 0 || slices.Contains(kinds[i+1:], true) {
			t.Fatalf("%+v", p)
		}
		if p.startup == nil {
			return
		}
		again, err := readPacket(bytes.NewReader(p.startup.append(nil)), nil)
		want := *p.startup
		want.Minor, want.Unknown = 0, nil
		if err != nil || !reflect.DeepEqual(*again.startup, want) {
			t.Fatalf("%+v became %+v, %v", want, again.startup, err)
		}
		m, err := pgproto3.NewBackend(bytes.NewReader(p.startup.append(nil)), nil).ReceiveStartupMessage()
		theirs, ok := m.(*pgproto3.StartupMessage)
		if err != nil || !ok || theirs.Parameters["user"] != want.User || theirs.Parameters["database"] != want.Database || len(theirs.Parameters) != 2+len(want.Settings) {
			t.Fatalf("%+v is %+v to pgx, %v", want, m, err)
		}
		if _, ok := theirs.Parameters["replication"]; ok {
			t.Fatal("replication")
		}
	})
}
