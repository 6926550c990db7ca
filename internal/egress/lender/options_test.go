package lender

import (
	"net"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{},
		{Control: "http://127.0.0.1:1"},
		{TokenFile: "x"},
		{Control: "http://control.example", TokenFile: "x"},
		{Control: "http://192.0.2.1:7070", TokenFile: "x"},
		{Control: "ftp://127.0.0.1", TokenFile: "x"},
		{Control: "https://u:p@control.example", TokenFile: "x"},
		{Control: "https://control.example?x", TokenFile: "x"},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		l, err := New(Options{Control: "http://" + net.JoinHostPort(n.IP.String(), "7070"), TokenFile: "x"})
		if err != nil {
			t.Fatalf("an address of this machine: %v", err)
		}
		l.Close()
	}
	l, err := New(Options{Control: "https://control.example/", TokenFile: "x"})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Value(t.Context(), box, lease("l-a")); reason(err) != task.InfraControlAway {
		t.Errorf("closed: %v", err)
	}
	if _, err := l.Value(t.Context(), box, task.Lease{}); reason(err) != task.PolicyCredential {
		t.Errorf("no lease: %v", err)
	}
}
