/* Protected paths. Pure but for reading the targets of links. Runs on our side. */
#include "workspace/protect.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/util.h"

struct protect_row {
    const char *name; /* one or more parts of a path, at any depth */
    const char *why;
};

/* Names are compared without regard to case: some file systems do not have any. */
static const struct protect_row rows[] = {
    {"cordon.toml", "policy of Cordon itself"},
    {".sandbox", "state of Cordon itself"},
    {".cache/cordon", "state of Cordon itself"},
    {".local/state/cordon", "state of Cordon itself"},
    {".cordon-apply~", "state of Cordon itself"},
    {".git/hooks", "git hook"},
    {".git/config", "git configuration"},
    {".git/config.worktree", "git configuration"},
    {".git/info/attributes", "git configuration"},
    {".git/modules", "git configuration of submodules"},
    {".git/commondir", "git configuration"},
    {".gitmodules", "git configuration"},
    {".hg/hgrc", "mercurial configuration"},
    {".gitconfig", "git configuration"},
    {".husky", "git hook"},
    {".githooks", "git hook"},
    {".pre-commit-config.yaml", "git hook"},
    {"lefthook.yml", "git hook"},
    {".bashrc", "shell start-up file"},
    {".bash_profile", "shell start-up file"},
    {".bash_login", "shell start-up file"},
    {".bash_logout", "shell start-up file"},
    {".bash_aliases", "shell start-up file"},
    {".profile", "shell start-up file"},
    {".zshrc", "shell start-up file"},
    {".zshenv", "shell start-up file"},
    {".zprofile", "shell start-up file"},
    {".zlogin", "shell start-up file"},
    {".zlogout", "shell start-up file"},
    {".kshrc", "shell start-up file"},
    {".cshrc", "shell start-up file"},
    {".tcshrc", "shell start-up file"},
    {".login", "shell start-up file"},
    {".inputrc", "shell start-up file"},
    {".envrc", "shell start-up file"},
    {".config/fish", "shell start-up file"},
    {".config/autostart", "desktop start-up file"},
    {".config/systemd", "service of the user"},
    {".ssh", "ssh configuration"},
    {".vscode", "editor configuration"},
    {".idea", "editor configuration"},
    {".zed", "editor configuration"},
    {".vimrc", "editor configuration"},
    {".exrc", "editor configuration"},
    {".nvim.lua", "editor configuration"},
    {".nvimrc", "editor configuration"},
    {".dir-locals.el", "editor configuration"},
    {".emacs", "editor configuration"},
    {".emacs.d", "editor configuration"},
    {".devcontainer", "editor configuration"},
    {".claude", "agent configuration"},
    {".claude.json", "agent configuration"},
    {".cursor", "agent configuration"},
    {".cursorrules", "agent configuration"},
    {".windsurfrules", "agent configuration"},
    {".codex", "agent configuration"},
    {".gemini", "agent configuration"},
    {".aider.conf.yml", "agent configuration"},
    {".mcp.json", "agent configuration"},
    {"CLAUDE.md", "agent configuration"},
    {"AGENTS.md", "agent configuration"},
    {"GEMINI.md", "agent configuration"},
    {".github/workflows", "CI configuration"},
    {".github/actions", "CI configuration"},
    {".github/copilot-instructions.md", "agent configuration"},
    {".github/dependabot.yml", "CI configuration"},
    {".gitlab-ci.yml", "CI configuration"},
    {".circleci", "CI configuration"},
    {".travis.yml", "CI configuration"},
    {".buildkite", "CI configuration"},
    {".drone.yml", "CI configuration"},
    {".woodpecker.yml", "CI configuration"},
    {".forgejo", "CI configuration"},
    {".gitea", "CI configuration"},
    {"Jenkinsfile", "CI configuration"},
    {"azure-pipelines.yml", "CI configuration"},
    {"bitbucket-pipelines.yml", "CI configuration"},
    {".npmrc", "package manager configuration"},
    {".yarnrc", "package manager configuration"},
    {".yarnrc.yml", "package manager configuration"},
    {".cargo/config", "package manager configuration"},
    {".cargo/config.toml", "package manager configuration"},
};

/* Does the row's name stand in the path, from the beginning of one part to the end of another? */
static bool protect_matches(const char *path, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncasecmp(p, name, len) == 0 && (p[len] == '\0' || p[len] == '/'))
            return true;
    }
    return false;
}

static const char *protect_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A folder with one in it is a repository to git, whose configuration then names programs. */
static bool protect_is_bare_head(const char *path)
{
    return strcasecmp(protect_name(path), "HEAD") == 0 && !protect_matches(path, ".git");
}

const char *protect_why(const char *path)
{
    if (protect_is_bare_head(path))
        return "git repository without a working tree";
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (protect_matches(path, rows[i].name))
            return rows[i].why;
    return NULL;
}

bool protect_leads_out(const char *path, const char *target)
{
    long depth = 0;
    if (target[0] == '/')
        return true;
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/'))
        depth++;
    for (const char *p = target; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            depth--;
        else if (len > 0 && !(len == 1 && p[0] == '.'))
            depth++;
        if (depth < 0)
            return true;
        p += len;
        p += strspn(p, "/");
    }
    return false;
}

_Static_assert(ARRAY_SIZE(rows) <= 96, "protect_watch.c has room for so many");

const char *protect_row(size_t index)
{
    return index < ARRAY_SIZE(rows) ? rows[index].name : NULL;
}

static bool protect_is_bad_link(const struct tree_change *c)
{
    _cleanup_buf_ struct buf target = BUF_INIT(8192);
    if (c->new.type != TREE_SYMLINK)
        return false;
    return tree_read(&c->new, c->path, &target) < 0 || protect_leads_out(c->path, target.data);
}

/* A file or link in the place of the folder leads git to a repository that lies elsewhere, under
 * names that are none of the above. */
static bool protect_is_git_file(const struct tree_change *c)
{
    bool is_file = c->new.type == TREE_FILE || c->new.type == TREE_SYMLINK ||
                   c->old.type == TREE_FILE || c->old.type == TREE_SYMLINK;
    return is_file && strcasecmp(protect_name(c->path), ".git") == 0;
}

void protect_mark(struct tree_changes *changes)
{
    for (size_t i = 0; i < changes->n; i++) {
        struct tree_change *c = &changes->list[i];
        c->is_protected = protect_why(c->path) || protect_is_git_file(c) || protect_is_bad_link(c);
    }
}
