package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/cofferdam/cofferdam/api"
)

// CreateSandbox makes a sandbox without a task. An empty ID is replaced by a
// random one, so that a repeated request makes one sandbox.
func (c *Client) CreateSandbox(ctx context.Context, req api.SandboxRequest) (api.Sandbox, error) {
	if req.ID == "" {
		req.ID = "sb-" + newName(16)
	}
	var s api.Sandbox
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("sandboxes")}, req, &s)
	return s, err
}

// Sandboxes lists the caller's sandboxes; an admin's list has everyone's.
func (c *Client) Sandboxes(ctx context.Context) ([]api.Sandbox, error) {
	var l api.SandboxList
	err := c.get(ctx, pathf("sandboxes"), nil, &l)
	return l.Sandboxes, err
}

// Sandbox returns one sandbox with its commands.
func (c *Client) Sandbox(ctx context.Context, id string) (api.Sandbox, error) {
	var s api.Sandbox
	err := c.get(ctx, pathf("sandboxes", id), nil, &s)
	return s, err
}

// RemoveSandbox ends a sandbox and everything in it. Removing one that is gone
// is no error.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("sandboxes", id)}, nil, nil)
	return err
}

// Exec starts a command. An empty ID is replaced by a random one, so that a
// repeated request starts one process. With req.Wait a short command's output
// and end are in the answer; see Run for commands of any length.
func (c *Client) Exec(ctx context.Context, sandbox string, req api.ExecRequest) (api.ExecResult, error) {
	if req.ID == "" {
		req.ID = "c-" + newName(16)
	}
	var r api.ExecResult
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("sandboxes", sandbox, "exec")}, req, &r)
	return r, err
}

// Run starts a command, copies its output to stdout and stderr until it has
// ended, and returns its final status. A short command takes one round trip.
func (c *Client) Run(ctx context.Context, sandbox string, req api.ExecRequest, stdout, stderr io.Writer) (api.CommandStatus, error) {
	req.Wait = true
	res, err := c.Exec(ctx, sandbox, req)
	if err != nil {
		return res.Command, err
	}
	write := func(fd int, data []byte) error {
		w := stdout
		if fd == api.FrameStderr {
			w = stderr
		}
		_, err := w.Write(data)
		return err
	}
	for _, chunk := range res.Output {
		data, err := chunk.Bytes()
		if err != nil {
			return res.Command, err
		}
		if err := write(chunk.Fd, data); err != nil {
			return res.Command, err
		}
	}
	if res.Done {
		return res.Command, nil
	}
	st, err := c.ExecStream(ctx, sandbox, res.Command.ID, res.Next, func(f api.Frame) error { return write(int(f.Fd), f.Data) })
	st.Started = st.Started || res.Command.Started
	return st, err
}

// Command returns where a command stands.
func (c *Client) Command(ctx context.Context, sandbox, command string) (api.CommandStatus, error) {
	var s api.CommandStatus
	err := c.get(ctx, pathf("sandboxes", sandbox, "exec", command), nil, &s)
	return s, err
}

// KillCommand ends a command's whole process tree.
func (c *Client) KillCommand(ctx context.Context, sandbox, command string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("sandboxes", sandbox, "exec", command)}, nil, nil)
	return err
}

// PutFiles unpacks a tar stream beneath dir (absolute) in the sandbox.
func (c *Client) PutFiles(ctx context.Context, sandbox, dir string, tar io.Reader) error {
	k := call{
		method: http.MethodPut, path: pathf("sandboxes", sandbox, "files"), query: url.Values{"dir": {dir}},
		kind: "application/x-tar", size: -1, once: true,
		body: func() (io.Reader, error) { return bufio.NewReaderSize(tar, 256<<10), nil },
	}
	_, err := c.json(ctx, k, nil, nil)
	return err
}

// GetFiles packs path (absolute) in the sandbox as a tar stream, whose bytes
// are what the sandbox says: the caller unpacks them as hostile.
func (c *Client) GetFiles(ctx context.Context, sandbox, path string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: pathf("sandboxes", sandbox, "files"), query: url.Values{"path": {path}}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Health asks whether the server answers. It needs no token.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	var h api.Health
	err := c.get(ctx, pathf("health"), nil, &h)
	return h, err
}

// Doctor asks the server what it finds about itself and its workers.
func (c *Client) Doctor(ctx context.Context) (api.Doctor, error) {
	var d api.Doctor
	err := c.get(ctx, pathf("doctor"), nil, &d)
	return d, err
}

// Workers lists the machines of the fleet.
func (c *Client) Workers(ctx context.Context) ([]api.Worker, error) {
	var l api.WorkerList
	err := c.get(ctx, pathf("workers"), nil, &l)
	return l.Workers, err
}

// AuditExport copies the whole audit, a JSON document a line, to w.
func (c *Client) AuditExport(ctx context.Context, w io.Writer) error {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: pathf("audit", "export")})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("audit export: %w", err)
	}
	return nil
}

// AuditKey returns the installation's verifier key. A key that came from the
// server proves nothing against the server: verify with one that was kept
// since the installation was made.
func (c *Client) AuditKey(ctx context.Context) (api.AuditKey, error) {
	var k api.AuditKey
	err := c.get(ctx, pathf("audit", "key"), nil, &k)
	return k, err
}

// CreateToken makes a token; its Secret is shown this once.
func (c *Client) CreateToken(ctx context.Context, req api.TokenRequest) (api.Token, error) {
	var t api.Token
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("tokens"), once: true}, req, &t)
	return t, err
}

// Tokens lists the tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context) ([]api.Token, error) {
	var l api.TokenList
	err := c.get(ctx, pathf("tokens"), nil, &l)
	return l.Tokens, err
}

// RemoveToken revokes a token at once.
func (c *Client) RemoveToken(ctx context.Context, id string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("tokens", id)}, nil, nil)
	return err
}

// OpenAPI returns the server's description of its API.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: "/openapi.json"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return data, nil
}
