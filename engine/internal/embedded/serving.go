package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// startLimit bounds how long a start may take; a start with thousands of open
// workflows takes one or two seconds.
const startLimit = 2 * time.Minute

// waitServing returns once front and history answer a client with the token.
func waitServing(ctx context.Context, address, token string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, err := client.NewLazyClient(client.Options{
		HostPort: address, Namespace: Namespace, Logger: silent{},
		Credentials: client.NewAPIKeyStaticCredentials(token),
		// Credentials alone would switch TLS on.
		ConnectionOptions: client.ConnectionOptions{TLSDisabled: true},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		err := probe(ctx, c)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("does not serve: %w", errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// probe asks the front for the namespace and history for a workflow that does
// not exist.
func probe(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: Namespace})
	if err != nil {
		return err
	}
	_, err = c.DescribeWorkflowExecution(ctx, "no-such-workflow", "")
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return nil
	}
	return err
}

// silent is a log that says nothing: a client that waits for the server has
// nothing to report.
type silent struct{}

var _ log.Logger = silent{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
