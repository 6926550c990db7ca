package lower

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestEtcHoldsNoSecrets(t *testing.T) {
	etc := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"shadow": 0o640, "ssh/ssh_host_key": 0o600, "sudoers": 0o440, "machine-id": 0o444, "gitconfig": 0o644,
		"npmrc": 0o644, "pip.conf": 0o644, "environment": 0o644, "cron.d/job": 0o644, "profile.d/proxy.sh": 0o644,
		"ssl/private/key.pem": 0o600, "ssl/certs/mine.pem": 0o600, "docker/config.json": 0o644,
		"ssl/certs/ca.crt": 0o644, "ld.so.conf": 0o644, "alternatives/x": 0o644, "python3/x": 0o644, "services": 0o644,
	} {
		path := filepath.Join(etc, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := walkEtc(etc, func(_, rel string, info os.FileInfo) error {
		if !info.IsDir() {
			got = append(got, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{"alternatives/x", "ld.so.conf", "python3/x", "services", "ssl/certs/ca.crt"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBaseEnvKeepsOnlyToolchains(t *testing.T) {
	env := BaseEnv("/root/bin:/usr/local/tool/bin:/home/me/bin:/opt/x/bin::.", "/")
	want := "PATH=/usr/local/tool/bin:/opt/x/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" +
		":/home/agent/.local/bin:/home/agent/go/bin:/home/agent/.cargo/bin"
	if env[0] != want {
		t.Errorf("got %q", env[0])
	}
}
