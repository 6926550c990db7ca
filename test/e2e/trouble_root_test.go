//go:build root

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// An object made by hand is reported by doctor, by its name.
func TestDoctorReportsOrphans(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	if out, err := e.CLI("doctor", "--data", e.Data); err != nil {
		t.Fatalf("doctor on a clean machine: %v\n%s", err, out)
	}
	hierarchy := "/sys/fs/cgroup"
	if _, err := os.Stat(hierarchy + "/memory"); err == nil {
		hierarchy += "/memory"
	}
	for name, make := range map[string]func(t *testing.T) string{
		"folder": func(t *testing.T) string {
			dir := filepath.Join(e.Data, "worker", "sandboxes", "sb-orphanorphanorph")
			return mkdir(t, dir)
		},
		"cgroup": func(t *testing.T) string { return mkdir(t, hierarchy+"/cofferdam-sb-orphanorphanorph") },
		"mount": func(t *testing.T) string {
			dir := mkdir(t, filepath.Join(e.Data, "worker", "orphan"))
			if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { syscall.Unmount(dir, 0) })
			return "orphan"
		},
		"process": func(t *testing.T) string {
			// A program that keeps any arguments: python.
			cmd := exec.Command("bash", "-c", fmt.Sprintf("exec -a runsc-sandbox python3 -c 'import time; time.sleep(600)' --root=%s/worker/runsc boot sb-orphanorphanorph", e.Data))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			return "sb-orphanorphanorph"
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := filepath.Base(make(t))
			testenv.Until(t, patience, "doctor to report "+want, func() bool {
				out, err := e.CLI("doctor", "--data", e.Data)
				return testenv.ExitCode(err) == 15 && strings.Contains(out, want)
			})
		})
		testenv.Until(t, patience, "doctor to be content again", func() bool {
			_, err := e.CLI("doctor", "--data", e.Data)
			return err == nil
		})
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	return dir
}

// A start that can't succeed says why and what to do, and leaves nothing.
func TestUpThatCannot(t *testing.T) {
	bin := testenv.Bin(t)
	try := func(args ...string) (string, int) {
		cmd := exec.Command(filepath.Join(bin, "cofferdam"), args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), testenv.ExitCode(err)
	}
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out, code := try("up", "--data", filepath.Join(open(t), "d"), "--listen", l.Addr().String(), "--detach")
		if code == 0 || !strings.Contains(out, l.Addr().String()) || !strings.Contains(out, "--listen") {
			t.Errorf("exit code %d, says %q", code, out)
		}
	})
	t.Run("not root", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(bin, "cofferdam"), "up", "--data", "/tmp/cfd-notroot", "--detach")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if testenv.ExitCode(err) == 0 || !strings.Contains(string(out), "root") {
			t.Errorf("%v, says %q", err, out)
		}
		if _, err := os.Stat("/tmp/cfd-notroot"); err == nil {
			t.Error("something was left behind")
		}
	})
	t.Run("public address", func(t *testing.T) {
		out, code := try("up", "--data", filepath.Join(open(t), "d"), "--listen", "0.0.0.0:0", "--detach")
		if code == 0 || !strings.Contains(out, "loopback") {
			t.Errorf("exit code %d, says %q", code, out)
		}
	})
	for what, hide := range map[string]struct{ mount, want string }{
		"no tun device": {"/dev/net", "modprobe tun"},
		"no cgroups":    {"/sys/fs/cgroup", "cgroup"},
	} {
		t.Run(what, func(t *testing.T) {
			data := filepath.Join(open(t), "d")
			out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
				`mount -t tmpfs none "$1" && shift && exec "$@"`, "sh", hide.mount,
				filepath.Join(bin, "cofferdam"), "up", "--data", data, "--listen", fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), "--detach").CombinedOutput()
			if testenv.ExitCode(err) != 15 || !strings.Contains(string(out), hide.want) || !strings.Contains(string(out), "infra.") {
				t.Errorf("%v, says %q", err, out)
			}
			e := &testenv.Env{T: t, Data: data}
			testenv.Until(t, patience, "nothing to run", func() bool { return len(e.Processes()) == 0 })
		})
	}
	t.Run("program missing", func(t *testing.T) {
		part := t.TempDir()
		if out, err := exec.Command("cp", filepath.Join(bin, "cofferdam"), part).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		out, err := exec.Command(filepath.Join(part, "cofferdam"), "up", "--data", filepath.Join(part, "d"), "--detach").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "cofferdamd") {
			t.Errorf("%v, says %q", err, out)
		}
	})
}

// A corrupt database is told and kept; the engine's file is only progress, and
// a lost one is made anew.
func TestCorruptFiles(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	got := run(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh("true")})
	must(t, e, got, api.Succeeded, "")
	e.Down()

	t.Run("engine", func(t *testing.T) {
		spoil(t, filepath.Join(e.Data, "engine", "engine.db"))
		e.Up()
		again := run(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh("true")})
		must(t, e, again, api.Succeeded, "")
		if before, err := e.Client.Task(context.Background(), got.ID); err != nil || before.State != api.Succeeded {
			t.Errorf("the earlier task is %q, %v", before.State, err)
		}
		e.Down()
	})
	t.Run("database", func(t *testing.T) {
		file := filepath.Join(e.Data, "cofferdamd", "cofferdam.db")
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bad := spoil(t, file)
		out, err := e.CLI("up", "--data", e.Data, "--listen", strings.TrimPrefix(e.URL, "http://"), "--detach")
		if testenv.ExitCode(err) != 15 || !strings.Contains(out, "cofferdam.db") {
			t.Errorf("%v, says %q", err, out)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != string(bad) {
			t.Errorf("the corrupt database was not kept as it was (%v)", err)
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		e.Down()
		e.Up()
		if before, err := e.Client.Task(context.Background(), got.ID); err != nil || before.State != api.Succeeded {
			t.Errorf("with the database restored the task is %q, %v", before.State, err)
		}
	})
}

// spoil overwrites the middle of a file and removes its journals.
func spoil(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if i >= 64 {
			b[i] ^= 0x5a
		}
	}
	for _, journal := range []string{"-wal", "-shm"} {
		os.Remove(file + journal)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, info.Mode()); err != nil {
		t.Fatal(err)
	}
	return b
}

// A worker that vanishes for good ends the task with a reason, and a worker
// that comes back cleans up what it had.
func TestWorkerThatVanishes(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	before := e.Census()
	id := submit(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh("sleep 600")}).ID
	inFlight(t, e, id, "agent")
	boot, err := e.Boot("worker")
	if err != nil {
		t.Fatal(err)
	}
	// Frozen, not dead: nothing restarts it and it answers nothing.
	if err := syscall.Kill(boot.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 5*patience, "the loss to be told", func() bool {
		out, _ := e.CLI("doctor", "--data", e.Data)
		return strings.Contains(out, "worker") && !strings.Contains(out, "nothing is wrong")
	})
	if err := e.Client.CancelTask(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(boot.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	got := e.WaitTask(id, patience)
	must(t, e, got, api.Cancelled, "cancelled")
	e.Unchanged(before)
}

// A full disk is told by its name, harms nothing that was there, and the
// platform goes on when there is room again.
func TestFullDisk(t *testing.T) {
	img := filepath.Join(t.TempDir(), "disk")
	mnt := open(t)
	shell(t, fmt.Sprintf("truncate -s 2600M %s && mkfs.ext4 -q -F %s && mount -o loop %s %s", img, img, img, mnt))
	t.Cleanup(func() { shell(t, "umount "+mnt) })
	t.Setenv("TMPDIR", mnt)
	if err := os.Chmod(mnt, 0o755); err != nil { // now the root of the mounted disk
		t.Fatal(err)
	}
	e := testenv.Start(t, testenv.Config{})
	source := bundle(t, e, small(t))
	must(t, e, run(t, e, api.TaskRequest{Repo: source, Agent: sh("true")}), api.Succeeded, "")

	big := filepath.Join(mnt, "big")
	exec.Command("dd", "if=/dev/zero", "of="+big, "bs=1M").Run() // fills the disk and fails
	_, _, err := e.Client.CreateTask(context.Background(), api.TaskRequest{Repo: source, Agent: sh("true")}, "full")
	if err == nil {
		got, _, err := e.Client.CreateTask(context.Background(), api.TaskRequest{Repo: source, Agent: sh("true")}, "full")
		t.Logf("with a full disk the task was still accepted: %v %v", got.ID, err)
	} else if !strings.Contains(err.Error(), "infra.storage") {
		t.Errorf("with a full disk: %v, want infra.storage", err)
	}
	if out, err := e.CLI("doctor", "--data", e.Data); err == nil || !strings.Contains(out, "disk") {
		t.Errorf("doctor on a full disk: %v\n%s", err, out)
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	must(t, e, run(t, e, api.TaskRequest{Repo: source, Agent: sh("true")}), api.Succeeded, "")
	if out, err := e.CLI("doctor", "--data", e.Data); err != nil {
		t.Errorf("doctor when there is room again: %v\n%s", err, out)
	}
}

// open makes a folder that the daemons' users may pass through, which a test's
// own folder is not.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd-open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// After `down` nothing of the installation runs, a sandbox in use included.
func TestDownLeavesNothing(t *testing.T) {
	var other testenv.Env
	other.Data = "/nonexistent-for-census"
	before := other.Census()
	e := testenv.Start(t, testenv.Config{})
	id := submit(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh("sleep 3; echo 42 > answer.txt"), Verify: "./check.sh"}).ID
	inFlight(t, e, id, "agent")
	e.Down()
	if left := e.Processes(); len(left) > 0 {
		t.Errorf("processes run: %+v", left)
	}
	testenv.Until(t, patience, "the machine to be as before", func() bool {
		added, _ := testenv.Diff(before, other.Census())
		return len(added) == 0
	})
	// The task is not lost: the next up resumes it.
	e.Up()
	must(t, e, e.WaitTask(id, patience), api.Succeeded, "")
}
