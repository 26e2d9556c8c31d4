"""The graph command: a workflow as a picture, from its code."""

import click

from penstock.cli.loading import load_app
from penstock.errors import UnknownWorkflow


@click.command
@click.argument("target", metavar="MODULE:APP")
@click.argument("workflow", metavar="[WORKFLOW]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "text"]),
    default="mermaid",
    show_default=True,
    help="A flowchart for pages that draw Mermaid, or levels of text.",
)
@click.option("--import", "modules", metavar="MODULE", multiple=True, help="Workflows elsewhere.")
def graph(*, target: str, workflow: str | None, form: str, modules: tuple[str, ...]) -> None:
    """Draw a workflow: which task waits for which, what it takes, and its rule.

    Without a name it draws the App's only workflow, or lists those that there are.
    """
    workflows = load_app(target, modules=modules).workflows
    if workflow is None and len(workflows) == 1:
        (workflow,) = workflows
    if workflow is None:
        for name in workflows:
            click.echo(name)
        if not workflows:
            click.echo("This App has no workflow.", err=True)
        return
    if workflow not in workflows:
        raise UnknownWorkflow(workflow, registered=list(workflows))
    click.echo(workflows[workflow].graph(form=form), nl=False)
