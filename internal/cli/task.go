package cli

import "github.com/spf13/cobra"

func (a *app) taskCmd() *cobra.Command {
	return group("task", "Look at tasks, stop and remove them",
		a.taskLsCmd(), a.taskShowCmd(), a.taskLogsCmd(), a.taskCancelCmd(), a.taskOutputsCmd(), a.taskReceiptCmd(), a.taskFilesCmd(), a.taskEgressCmd(), a.budgets().Task(), a.taskRmCmd())
}
