package flags

// nameRules are the rules about names, folded.
func nameRules() []nameRule {
	return append(append(gitRules(), editorRules()...), buildRules()...)
}

// gitRules are about git, CI and who reviews.
func gitRules() []nameRule {
	const hook, ci = "Git hooks run it at the next commit, checkout or push.", "It runs in CI, with the secrets that CI has."
	return []nameRule{
		{id: "git.hook", why: hook, gone: true,
			dirs:  []string{".githooks", ".git-hooks", ".hooks", "githooks", ".husky", ".lefthook"},
			names: []string{".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", "lefthook*.y*ml", ".lefthook*.y*ml", "lefthook*.toml", ".overcommit.yml", ".huskyrc*", ".lintstagedrc*", ".simple-git-hooks.*"}},
		{id: "git.submodule", why: "It says from where submodules are fetched, and with which command.", names: []string{".gitmodules"}},
		{id: "git.config", why: "Git's configuration can name programs that git runs.", names: []string{".gitconfig", ".lfsconfig", "gitconfig"}},
		{id: "workflow.github", why: ci, gone: true, dirs: []string{".github/workflows", ".github/actions"}, names: []string{"action.yml", "action.yaml"}},
		{id: "workflow.gitlab", why: ci, gone: true, names: []string{"*.gitlab-ci.y*ml", ".gitlab-ci.y*ml"}, dirs: []string{".gitlab/ci", ".gitlab-ci"}},
		{id: "workflow.gitea", why: ci, gone: true, dirs: []string{".gitea/workflows", ".forgejo/workflows", ".gitea/actions", ".forgejo/actions"}},
		{id: "workflow.circleci", why: ci, gone: true, dirs: []string{".circleci"}},
		{id: "workflow.jenkins", why: ci, gone: true, names: []string{"jenkinsfile*", "*.jenkinsfile"}},
		{id: "workflow.azure", why: ci, gone: true, names: []string{"azure-pipelines*.y*ml"}, dirs: []string{".azure-pipelines", ".azuredevops", ".pipelines"}},
		{id: "workflow.other", why: ci, gone: true,
			names: []string{
				"bitbucket-pipelines.y*ml", ".travis.y*ml", "appveyor.y*ml", ".appveyor.y*ml", ".drone.*", ".woodpecker.y*ml", "cloudbuild*.y*ml", "cloudbuild.json", ".cirrus.y*ml", ".cirrus.star",
				"buildspec*.y*ml", "codefresh.y*ml", "wercker.yml", ".build.yml", "earthfile", "dagger.json", ".goreleaser*.y*ml", "concourse*.y*ml", "bamboo-specs.y*ml", "screwdriver.yaml",
			},
			dirs: []string{".buildkite", ".woodpecker", ".semaphore", ".tekton", ".teamcity", ".builds", ".codefresh", ".dagger", "bamboo-specs"}},
		{id: "workflow.deploy", why: "It is read when the project is deployed.",
			names: []string{"netlify.toml", "vercel.json", "render.yaml", "fly.toml", "serverless.y*ml", "skaffold.yaml", "tiltfile", "app.json", "procfile", "*.tf", "*.tofu", "pulumi*.y*ml", "cdk.json", "chart.yaml", "kustomization.y*ml", "wrangler.toml", "wrangler.json*"}},
		{id: "workflow.review", why: "It decides who must review, or changes the project on its own.", gone: true,
			names: []string{"codeowners", ".mergify.yml", "renovate.json*", ".renovaterc*", ".github/dependabot.yml", ".github/dependabot.yaml", ".github/settings.yml", ".github/renovate.json", ".github/renovate.json5", "bors.toml", ".kodiak.toml"}},
	}
}

// editorRules are about editors, shells and agents.
func editorRules() []nameRule {
	const obeys = "A coding agent obeys it, or runs what it names, when it works in the folder."
	return []nameRule{
		{id: "editor.vscode", why: "The editor reads it when the folder is opened, and may run what it names.", dirs: []string{".vscode", ".vscode-server"}, names: []string{"*.code-workspace"}},
		{id: "editor.jetbrains", why: "The editor reads it when the folder is opened, and may run what it names.", dirs: []string{".idea", ".run", ".fleet"}},
		{id: "editor.devcontainer", why: "It is built and run when the folder is opened in a container.", dirs: []string{".devcontainer", ".codesandbox"}, names: []string{".devcontainer.json", ".gitpod.y*ml", ".gitpod.dockerfile", ".replit", "replit.nix", ".stackblitzrc", "devfile.yaml"}},
		{id: "editor.shell", why: "A shell runs it when it starts, or when the folder is entered.",
			names: []string{
				".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".autoenv.zsh", ".env.leave",
				"config.fish", ".tool-versions", "mise*.toml", ".mise*.toml", ".rtx.toml", ".screenrc", ".tmux.conf", "*profile.ps1", "autorun.inf", ".xprofile", ".xinitrc", ".xsessionrc", "*.desktop",
			},
			dirs: []string{".mise", ".config/fish", ".config/mise", ".ssh", ".config/systemd", ".config/autostart", ".local/bin"}},
		{id: "editor.other", why: "A tool runs it when it starts in the folder.",
			names: []string{
				".exrc", ".vimrc", "_vimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".vim-bookmarks", ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".projectile", "*.sublime-project", "*.sublime-build", ".gdbinit", ".gdbearlyinit", ".lldbinit",
				".pdbrc", ".pdbrc.py", ".pryrc", ".irbrc", ".pythonrc*", ".rprofile", ".renviron", ".ghci", ".psqlrc", ".sqliterc", ".curlrc", ".wgetrc", ".netrc", "_netrc", "startup.m", ".octaverc", ".juliarc.jl",
			},
			dirs: []string{".zed", ".nova", ".vim", ".nvim", ".helix", ".ipython"}},
		{id: "agent.claude", why: obeys, names: []string{"claude.md", "claude.local.md", "skill.md"}, dirs: []string{".claude", ".claude-plugin"}},
		{id: "agent.codex", why: obeys, names: []string{"agents.md", "agents.override.md", "agent.md"}, dirs: []string{".codex", ".agents", ".agent"}},
		{id: "agent.cursor", why: obeys, names: []string{".cursorrules", ".cursorignore"}, dirs: []string{".cursor"}},
		{id: "agent.gemini", why: obeys, names: []string{"gemini.md"}, dirs: []string{".gemini"}},
		{id: "agent.copilot", why: obeys, names: []string{".github/copilot-instructions.md", "copilot-instructions.md", "*.prompt.md", "*.instructions.md", "*.chatmode.md", "*.agent.md"}, dirs: []string{".github/instructions", ".github/prompts", ".github/agents", ".github/chatmodes", ".github/skills", ".github/hooks", ".copilot"}},
		{id: "agent.mcp", why: "It names programs that coding agents start.", names: []string{".mcp.json", "mcp.json", "mcp_config.json", ".mcp.y*ml"}, dirs: []string{".mcp"}},
		{id: "agent.cofferdam", why: "It says what tasks on this repository ask for.", dirs: []string{".cofferdam"}},
		{id: "agent.other", why: obeys,
			names: []string{
				".windsurfrules", ".clinerules", ".roorules*", ".roomodes", ".aider*", "opencode.json*", ".opencode.json", ".goosehints", ".goose*", "qwen.md", "crush.md", "crush.json", ".crush.json", "amp.md", "warp.md", "junie.md", "conventions.md", ".rules", "replit.md", "iflow.md", "kilocode.md",
			},
			dirs: []string{".opencode", ".windsurf", ".clinerules", ".cline", ".roo", ".kilocode", ".continue", ".amazonq", ".kiro", ".junie", ".qwen", ".crush", ".amp", ".augment", ".trae", ".factory", ".goose", ".openhands", ".warp", ".iflow", ".devin"}},
	}
}

// buildRules are about what installs, builds and tests, and about licences.
func buildRules() []nameRule {
	const runs = "It runs when the project is built or tested."
	return []nameRule{
		{id: "build.make", why: runs, names: []string{"makefile", "gnumakefile", "bsdmakefile", "makefile.*", "*.mk", "justfile", ".justfile", "taskfile*.y*ml", "cmakelists.txt", "cmakepresets.json", "*.cmake", "configure", "configure.ac", "configure.in", "makefile.am", "*.m4", "meson.build", "build.ninja", "wscript", "sconstruct", "sconscript", "build.sh", "bootstrap", "autogen.sh", "xmake.lua", "premake*.lua", "build.xml", "build.zig", "build.jai", "nob.c"}},
		{id: "build.python", why: "Python runs it when it starts, installs or tests the project.", names: []string{"setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "*.start", "noxfile.py", "toxfile.py", "tasks.py", "fabfile.py", "dodo.py", "sconstruct.py", "build.py", "hatch_build.py", "pip.conf", "pip.ini", ".pypirc", "__editable__*", ".python-version", "uv.toml", "pixi.toml", "environment.y*ml"}},
		{id: "build.rust", why: "Cargo runs it, or runs what it names, at each build.", names: []string{"build.rs", "rust-toolchain", "rust-toolchain.toml"}, dirs: []string{".cargo"}},
		{id: "build.npm", why: "Package managers and tools of JavaScript run it, or obey it, at the next install or build.",
			names: []string{
				".npmrc", ".yarnrc", ".yarnrc.y*ml", ".pnpmfile.*", "pnpmfile.*", "pnpm-workspace.yaml", "bunfig.toml", "binding.gyp", "*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", "*.config.mts", "*.config.cts",
				".eslintrc.*js", ".prettierrc.*js", ".babelrc.*js", ".babelrc", ".stylelintrc.*js", ".mocharc.*", ".nycrc*", "gruntfile.*", "gulpfile.*", "jakefile*", "nx.json", "turbo.json", "lerna.json", "deno.json*", ".swcrc", ".node-version", ".nvmrc",
			},
			dirs: []string{".yarn", ".storybook"}},
		{id: "build.gradle", why: "Gradle runs it at each build.", names: []string{"gradlew", "gradlew.bat", "*.gradle", "*.gradle.kts", "gradle.properties", "local.properties"}, dirs: []string{"gradle/wrapper", "buildsrc"}},
		{id: "build.maven", why: "Maven runs it, or obeys it, at each build.", names: []string{"mvnw", "mvnw.cmd", ".mavenrc"}, dirs: []string{".mvn"}},
		{id: "build.ruby", why: "Ruby's tools run it at the next install or build.", names: []string{"gemfile", "gems.rb", "*.gemspec", "rakefile", "*.rake", "extconf.rb", ".rspec", "capfile", "guardfile", "vagrantfile", "podfile", "*.podspec", "fastfile", "dangerfile", "brewfile", ".ruby-version", ".irb_rc"}, dirs: []string{".bundle", "fastlane"}},
		{id: "build.container", why: "It runs when an image is built or started.", names: []string{"dockerfile*", "*.dockerfile", "containerfile*", "docker-compose*.y*ml", "compose*.y*ml", "docker-bake.*", ".dockerignore"}},
		{id: "build.bazel", why: "Bazel runs it, or obeys it, at each build.", names: []string{"build.bazel", "build", "workspace", "workspace.bazel", "module.bazel", "*.bzl", ".bazelrc", ".bazelversion", "buck", ".buckconfig", "*.star"}},
		{id: "build.dotnet", why: "The .NET tools run it, or obey it, at each build.", names: []string{"*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.props", "*.targets", "nuget.config", "global.json", "*.sln", "*.slnx", "*.suo", "*.ruleset", "dotnet-tools.json"}},
		{id: "build.other", why: runs, names: []string{"flake.nix", "default.nix", "shell.nix", "*.nix", "build.sbt", "*.sbt", "build.sc", "build.mill", "package.swift", "mix.exs", "rebar.config", "rebar.config.script", "setup.hs", "stack.yaml", "cabal.project", "dune", "dune-project", "*.opam", "build.clj", "deps.edn", "project.clj", "build.pl", "makefile.pl", "build.ps1", "build.psm1", "magefile.go", "phpunit.xml*", "pubspec.yaml", "melos.yaml", "conan*.py", "conanfile.txt", "vcpkg.json", "elm.json", "foundry.toml", "hardhat.config.*", "playbook*.y*ml", "ansible.cfg"}, dirs: []string{"magefiles", "project/plugins.sbt"}},
		{id: "licence.file", why: "It says under which terms the code may be used.", gone: true, names: []string{"license", "license.*", "license-*", "licence", "licence.*", "licence-*", "copying*", "notice", "notice.*", "copyright", "copyright.*", "unlicense*", "patents", "eula*", "cla.md"}, dirs: []string{"licenses", "licences"}},
	}
}
