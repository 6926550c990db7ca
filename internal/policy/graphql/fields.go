package graphql

// inside are fields that lead from an object of a repository to another one of
// the same repository, and what lists are made of.
func inside() []string {
	return []string{
		"nodes", "edges", "node", "pageInfo",
		"issue", "issues", "issueOrPullRequest", "pinnedIssues", "pullRequest", "pullRequests", "discussion", "discussions", "discussionCategory", "discussionCategories", "category",
		"comments", "comment", "replies", "replyTo", "answer", "reviews", "review", "latestReviews", "latestOpinionatedReviews", "reviewThreads", "pullRequestReview",
		"files", "label", "labels", "milestone", "milestones", "reactions", "reactionGroups",
		"reviewRequests", "reviewDecision", "mergeCommit", "potentialMergeCommit", "autoMergeRequest", "mergeQueue", "mergeQueueEntry", "userContentEdits",
		"defaultBranchRef", "ref", "refs", "baseRef", "target", "object", "commit", "commits", "history", "parents", "tree", "entries", "tag", "blame", "ranges", "file",
		"status", "contexts", "context", "statusCheckRollup", "checkSuite", "checkSuites", "checkRun", "checkRuns", "steps", "annotations", "workflowRun", "workflow",
		"release", "releases", "latestRelease", "releaseAssets", "tagCommit", "languages", "primaryLanguage", "licenseInfo", "repositoryTopics", "topic", "issueTemplates", "pullRequestTemplates", "codeowners", "contributingGuidelines",
		"submodules", "signature", "messageBodyHTML", "counts", "starting", "ending",
	}
}

// doors are fields that lead out of a repository.
func doors() []string {
	return []string{
		"author", "authors", "committer", "creator", "editor", "actor", "user", "owner", "app", "mergedBy", "closedBy", "enabledBy", "requestedReviewer", "requestedReviewers",
		"assignees", "assignee", "participants", "assignableUsers", "mentionableUsers", "suggestedReviewers", "reviewer", "answerChosenBy", "pinnedBy", "lastEditedBy", "onBehalfOf", "uploader", "signer",
		"reactors", "headRef", "headRepository", "headRepositoryOwner", "baseRepository", "repository", "parent", "templateRepository", "organization",
	}
}

// shown are the fields without a selection that may be asked of what is behind a
// door: they name it.
func shown() []string {
	return []string{
		"__typename", "id", "databaseId", "login", "name", "slug", "nameWithOwner", "url", "resourcePath", "avatarUrl", "email", "date",
		"isPrivate", "isFork", "isArchived", "isBot", "isViewer", "viewerPermission", "totalCount", "hasNextPage", "hasPreviousPage", "endCursor", "startCursor", "cursor",
	}
}
