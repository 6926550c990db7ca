package embedded

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// All ports are found again after a restart, as far as they are free, and told,
// so that who keeps others away from them knows them.
func TestPortsAreRemembered(t *testing.T) {
	dir := t.TempDir()
	first, err := choosePorts(dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	again, err := choosePorts(dir, "127.0.0.1:0")
	if err != nil || again != first {
		t.Errorf("%+v after %+v, %v", again, first, err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(first.history)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	third, err := choosePorts(dir, "127.0.0.1:0")
	if err != nil || third.history == first.history || third.front != first.front || third.worker != first.worker {
		t.Errorf("%+v while %d is taken, %v", third, first.history, err)
	}
	if err := writeBoot(Options{Folder: dir, Boot: "b"}, "127.0.0.1:1", third.addresses()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "boot.json"))
	if err != nil {
		t.Fatal(err)
	}
	var boot struct{ Inner []string }
	if err := json.Unmarshal(text, &boot); err != nil || len(boot.Inner) != 4 || !slices.Equal(boot.Inner, third.addresses()) {
		t.Errorf("%s, %v", text, err)
	}
}

// A file of an earlier release has the port of the front alone.
func TestPortsOfEarlierReleases(t *testing.T) {
	dir := t.TempDir()
	first, err := choosePorts(dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte(strconv.Itoa(first.front)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second, err := choosePorts(dir, "127.0.0.1:0"); err != nil || second.front != first.front || second.inner == 0 {
		t.Errorf("%+v after %+v, %v", second, first, err)
	}
}
