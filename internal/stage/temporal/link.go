package temporal

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// lookEvery is how often the engine's address is looked at.
	lookEvery = 500 * time.Millisecond
	dialLimit = 5 * time.Second
	// stopLimit is how long a stopping worker waits for runs to let go.
	stopLimit = 10 * time.Second
)

// clientOptions are the options of every link but for the address.
func clientOptions(o Options, k *keys) client.Options {
	data, failure := converters(k)
	opts := client.Options{
		Namespace: o.Namespace, DataConverter: data, FailureConverter: failure,
		Logger: log.NewStructuredLogger(o.Logger),
		ConnectionOptions: client.ConnectionOptions{
			TLS: o.TLS, TLSDisabled: o.TLS == nil,
			// An engine on this machine is back in a second; the default waits
			// longer and longer.
			DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 2 * time.Second,
			})},
		},
	}
	if o.TokenFile != "" {
		// Read at each call: the engine makes the file, maybe after us, and makes
		// another when it is removed.
		opts.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) {
			b, err := os.ReadFile(o.TokenFile)
			return strings.TrimSpace(string(b)), err
		})
	}
	return opts
}

// address is where the engine is now.
func (e *Engine) address() (string, error) {
	if e.opts.Address != "" {
		return e.opts.Address, nil
	}
	b, err := os.ReadFile(e.opts.AddressFile)
	if err != nil {
		return "", err
	}
	var boot struct {
		Address string `json:"address"`
	}
	if err := json.Unmarshal(b, &boot); err != nil {
		return "", fmt.Errorf("%s: %w", e.opts.AddressFile, err)
	}
	if _, _, err := net.SplitHostPort(boot.Address); err != nil {
		return "", fmt.Errorf("%s: %w", e.opts.AddressFile, err)
	}
	return boot.Address, nil
}

// keepLink holds one link after another until ctx is done.
func (e *Engine) keepLink(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		address, err := e.address()
		if err == nil {
			err = e.hold(ctx, address)
		}
		if err != nil && ctx.Err() == nil {
			if said != err.Error() {
				said = err.Error()
				e.opts.Logger.Warn("waiting for the engine", "address", address, "err", err)
			}
			pause(ctx, lookEvery)
		} else {
			said = ""
		}
	}
}

// hold connects to address, works, and returns when the engine is elsewhere,
// when the worker can't go on, or when ctx is done.
func (e *Engine) hold(ctx context.Context, address string) error {
	opts := e.clientOpts
	opts.HostPort = address
	dial, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := client.DialContext(dial, opts)
	if err != nil {
		return err
	}
	defer c.Close()
	fatal := make(chan error, 1)
	w := worker.New(c, taskQueue, worker.Options{
		WorkerStopTimeout:            stopLimit,
		MaxHeartbeatThrottleInterval: heartbeat / 5,
		DisableRegistrationAliasing:  true,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	})
	w.RegisterWorkflowWithOptions(taskWorkflow, workflow.RegisterOptions{Name: workflowName})
	e.activities.register(w)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	e.opts.Logger.Info("connected to the engine", "address", address)
	e.setClient(c)
	defer e.setClient(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-fatal:
			return err
		case <-time.After(lookEvery):
			if now, err := e.address(); err == nil && now != address {
				e.opts.Logger.Info("the engine moved", "from", address, "to", now)
				return nil
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
