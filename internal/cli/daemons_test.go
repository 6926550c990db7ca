package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func isDaemon(name string) bool {
	return slices.Contains([]string{"cofferdam-engine", "cofferdamd", "cofferdam-gateway", "cofferdam-worker"}, name)
}

// daemon is a daemon as far as its supervisor can tell. One that finds a file
// broken in its folder fails.
func daemon(name string, args []string) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	data := flags.String("data", "", "")
	listen := flags.String("listen", "127.0.0.1:0", "")
	for _, ignored := range []string{"operator-policy", "dns", "roots", "protect", "control", "control-token-file", "server", "token-file", "runsc", "guest", "hosts", "images"} {
		flags.String(ignored, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	dir := filepath.Join(*data, map[string]string{"cofferdam-engine": "engine", "cofferdamd": "cofferdamd", "cofferdam-gateway": "gateway", "cofferdam-worker": "worker"}[name])
	if _, err := os.Stat(filepath.Join(dir, "broken")); err == nil {
		fmt.Fprintln(os.Stderr, "the database is corrupt")
		return errors.New("broken")
	}
	boot := map[string]any{"program": name, "pid": os.Getpid(), "boot": fmt.Sprint(os.Getpid()), "startedAt": time.Now(), "address": "127.0.0.1:7233"}
	if name == "cofferdamd" {
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
			return err
		}
		for _, token := range []string{"admin", "worker", "gateway"} {
			if err := os.WriteFile(filepath.Join(dir, "keys", token+".token"), []byte(fakeToken), 0o600); err != nil {
				return err
			}
		}
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(boot) }))
		}()
	}
	text, err := json.Marshal(boot)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "boot.new"), text, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "boot.new"), filepath.Join(dir, "boot.json"))
	}
	if err != nil {
		return err
	}
	<-stop
	return nil
}
