package inside

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of the small box are a part of each; see cli/attack.
const (
	manyProcesses = 400
	manyBytes     = 700 << 20
	manyFiles     = 200_000
)

func limits() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"limits.processes":  func(*try) verdict { return processes() },
		"limits.open-files": func(*try) verdict { return openFiles() },
		"limits.disk":       func(*try) verdict { return fill("/workspace") },
		"limits.shared":     func(*try) verdict { return fill("/dev/shm") },
		"limits.sparse":     func(*try) verdict { return sparse() },
		"limits.memory":     func(*try) verdict { return memory() },
	}
}

// processes starts many that wait, and ends them. It keeps no descriptor of them,
// so that no other limit is met first.
func processes() verdict {
	program, err := exec.LookPath("sleep")
	if err != nil {
		return untried("%v", err)
	}
	var all []int
	defer func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}()
	for range manyProcesses {
		pid, err := syscall.ForkExec(program, []string{"sleep", "60"}, &syscall.ProcAttr{})
		if errors.Is(err, syscall.EAGAIN) {
			return held("the process after %d others: %v", len(all), err)
		}
		if err != nil {
			return untried("the process after %d others failed for another reason: %v", len(all), err)
		}
		all = append(all, pid)
	}
	return fell("%d processes were started", len(all))
}

func openFiles() verdict {
	var all []*os.File
	defer func() {
		for _, f := range all {
			f.Close()
		}
	}()
	for range 100_000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			return held("after %d: %v", len(all), err)
		}
		all = append(all, f)
	}
	return fell("%d files were opened", len(all))
}

// fill writes until it is refused, and removes what it wrote.
func fill(dir string) verdict {
	file := filepath.Join(dir, "fill")
	f, err := os.Create(file)
	if err != nil {
		return held("%v", err)
	}
	defer os.Remove(file)
	defer f.Close()
	block := make([]byte, 1<<20)
	block[0] = 1
	for n := 0; n < manyBytes; n += len(block) {
		if _, err := f.Write(block); err != nil {
			return held("after %d MiB: %v", n>>20, err)
		}
	}
	return fell("%d MiB were written", manyBytes>>20)
}

// sparse makes a large file of nothing and fills a part of it.
func sparse() verdict {
	file := "/workspace/sparse"
	f, err := os.Create(file)
	if err != nil {
		return untried("%v", err)
	}
	defer os.Remove(file)
	defer f.Close()
	if err := f.Truncate(10 << 30); err != nil {
		return held("truncate: %v", err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 2<<30); err == nil { //nolint:gosec // G115: a descriptor
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Blocks*512 > manyBytes { //nolint:gosec // G115: a descriptor
			return fell("%d MiB were taken without writing", st.Blocks*512>>20)
		}
		return held("nothing was taken by asking for it")
	} else if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return held("a file of nothing takes nothing: %v", err)
	} else {
		return held("fallocate: %v", err)
	}
}

// memory takes more than there is; the command itself is to be ended, and then
// says nothing.
func memory() verdict {
	var all [][]byte
	for n := 0; n < manyBytes; n += 8 << 20 {
		b := make([]byte, 8<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		// Memory is watched a few times a second: what takes it at once ends the whole
		// sandbox, which is another limit than the command's that is tried here.
		<-time.After(2 * time.Millisecond)
	}
	return fell("%s", fmt.Sprintf("%d MiB of memory were taken", len(all)*8))
}
