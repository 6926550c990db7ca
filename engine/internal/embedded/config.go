package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
)

const (
	loopback = "127.0.0.1"
	// shards can never change for a given database.
	shards      = 4
	clusterName = "active"
)

// ports are the loopback ports of the front and of the inner services.
type ports struct {
	front, inner, history, matching, worker int
}

// addresses are those of the inner services.
func (p ports) addresses() []string {
	var all []string
	for _, port := range []int{p.inner, p.history, p.matching, p.worker} {
		all = append(all, net.JoinHostPort(loopback, strconv.Itoa(port)))
	}
	return all
}

// choosePorts takes the port asked for, else the remembered one when it is
// free, else any, and remembers it: clients that redial after a restart then
// mostly find the engine where it was. The inner services' are remembered too, so
// that who keeps others away from them needs no new list.
func choosePorts(folder, listen string) (ports, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ports{}, fmt.Errorf("listen address %q: %w", listen, err)
	}
	if host != loopback {
		return ports{}, fmt.Errorf("listen address %q: the engine listens on %s only", listen, loopback)
	}
	remembered := filepath.Join(folder, "port")
	text, err := os.ReadFile(remembered)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ports{}, fmt.Errorf("remembered ports: %w", err)
	}
	old := strings.Fields(string(text))
	again := func(i int) []string {
		if i < len(old) {
			return []string{old[i], "0"}
		}
		return []string{"0"}
	}
	wanted := []string{port}
	if port == "0" {
		wanted = again(0)
	}
	// All are held open until the last is chosen, so that they differ.
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	take := func(candidates ...string) (int, error) {
		var last error
		for _, c := range candidates {
			l, err := net.Listen("tcp4", net.JoinHostPort(loopback, c))
			if err != nil {
				last = err
				continue
			}
			held = append(held, l)
			return l.Addr().(*net.TCPAddr).Port, nil
		}
		return 0, fmt.Errorf("engine port: %w", last)
	}
	var p ports
	if p.front, err = take(wanted...); err != nil {
		return ports{}, err
	}
	for i, inner := range []*int{&p.inner, &p.history, &p.matching, &p.worker} {
		if *inner, err = take(again(i + 1)...); err != nil {
			return ports{}, err
		}
	}
	return p, writeFile(remembered, fmt.Appendf(nil, "%d\n%d\n%d\n%d\n%d\n", p.front, p.inner, p.history, p.matching, p.worker))
}

// serverConfig is the whole configuration: one cluster, one SQLite file, no
// membership, no metrics port, no profiler, no archival.
func serverConfig(database string, p ports) *config.Config {
	service := func(port int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
	}
	store := sqlConfig(database)
	return &config.Config{
		Global: config.Global{Membership: config.Membership{
			MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback,
		}},
		Persistence: config.Persistence{
			DefaultStore: sqlite.PluginName, VisibilityStore: sqlite.PluginName,
			NumHistoryShards: shards,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled: true, InitialFailoverVersion: 1,
				RPCAddress: net.JoinHostPort(loopback, strconv.Itoa(p.front)),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService):         service(p.front),
			string(primitives.InternalFrontendService): service(p.inner),
			string(primitives.HistoryService):          service(p.history),
			string(primitives.MatchingService):         service(p.matching),
			string(primitives.WorkerService):           service(p.worker),
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}
}

// sqlConfig opens the file so that what was acknowledged survives a power cut.
func sqlConfig(database string) *config.SQL {
	return &config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: database,
		ConnectAttributes: map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "2", "busy_timeout": "10000",
		},
	}
}
