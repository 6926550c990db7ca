package temporal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

func TestCodec(t *testing.T) {
	data, failure := converters(keysOf(t, bytes.Repeat([]byte{1}, 32)))
	sealed, err := data.ToPayloads("secret content")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(sealed.String(), "secret content") {
		t.Fatal("the payload is readable")
	}
	var got string
	if err := data.FromPayloads(sealed, &got); err != nil || got != "secret content" {
		t.Fatalf("got %q, %v", got, err)
	}
	if f := failure.ErrorToFailure(errors.New("secret text")); strings.Contains(f.String(), "secret text") {
		t.Fatalf("the failure is readable: %s", f)
	}

	plain, err := converter.GetDefaultDataConverter().ToPayloads("plain")
	if err != nil {
		t.Fatal(err)
	}
	if err := data.FromPayloads(plain, &got); !errors.Is(err, errPlain) {
		t.Fatalf("a plain payload: %v", err)
	}
	other, _ := converters(keysOf(t, bytes.Repeat([]byte{2}, 32)))
	if err := other.FromPayloads(sealed, &got); err == nil || !strings.Contains(err.Error(), "key") {
		t.Fatalf("another key: %v", err)
	}
	for i := range sealed.Payloads[0].Data {
		bad := &commonpb.Payload{Metadata: sealed.Payloads[0].Metadata, Data: bytes.Clone(sealed.Payloads[0].Data)}
		bad.Data[i] ^= 1
		if err := data.FromPayload(bad, &got); err == nil {
			t.Fatalf("byte %d altered and not noticed", i)
		}
	}
}

// keysOf is a file with one key.
func keysOf(t testing.TB, key []byte) *keys {
	t.Helper()
	s, err := newSealer(hex.EncodeToString(key))
	if err != nil {
		t.Fatal(err)
	}
	return &keys{path: filepath.Join(t.TempDir(), "engine.key"), all: []*sealer{s}}
}

// TestRotatedKeyOpensWhatItSealed: what was sealed before opens, also after a
// restart, and what is sealed after it does not open under the old key.
func TestRotatedKeyOpensWhatItSealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.key")
	k, err := loadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	first := &keys{all: []*sealer{k.current()}}
	data, _ := converters(k)
	before, err := data.ToPayloads("before")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{k.current().name: true}
	for range 3 {
		name, err := k.rotate()
		if err != nil || names[name] || name != k.current().name {
			t.Fatalf("rotated to %q, %v", name, err)
		}
		names[name] = true
	}
	after, err := data.ToPayloads("after")
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKeys(path)
	if err != nil || again.current().name != k.current().name || len(again.all) != 4 {
		t.Fatalf("after a restart: %d keys, %v", len(again.all), err)
	}
	for _, have := range []*keys{k, again} {
		data, _ := converters(have)
		var got string
		if err := data.FromPayloads(before, &got); err != nil || got != "before" {
			t.Errorf("before: %q, %v", got, err)
		}
		if err := data.FromPayloads(after, &got); err != nil || got != "after" {
			t.Errorf("after: %q, %v", got, err)
		}
	}
	old, _ := converters(first)
	var got string
	if err := old.FromPayloads(after, &got); err == nil {
		t.Error("the old key opens what was sealed after it")
	}
	for range maxFormer + 3 {
		if _, err := k.rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 65*(1+maxFormer) {
		t.Errorf("%v, %v", info, err)
	}
	// What can't be written has not happened.
	k.path = filepath.Join(t.TempDir(), "gone", "engine.key")
	name := k.current().name
	if _, err := k.rotate(); err == nil || k.current().name != name {
		t.Errorf("rotated without a file: %v", err)
	}
}

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "engine")
	first, err := loadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKeys(path)
	if err != nil || first.current().text != again.current().text {
		t.Fatalf("the key changed: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadKeys(path); err == nil {
		t.Fatal("a bad key was taken")
	}
}
