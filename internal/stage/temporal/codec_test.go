package temporal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

func TestCodec(t *testing.T) {
	data, failure, err := converters(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
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
	other, _, err := converters(bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
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

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "engine")
	first, err := loadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKey(path)
	if err != nil || !bytes.Equal(first, again) {
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
	if _, err := loadKey(path); err == nil {
		t.Fatal("a bad key was taken")
	}
}
