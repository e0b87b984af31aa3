"""What turns have learned of the model server that they ask: plain data, which lives as long as the process."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ServerTraits:
    """One model server's ways, the same object for all turns that it answers.

    ``refused_choices``: the types of ``tool_choice`` that it refuses whoever asks (``none``, say, with LMDeploy).
    """

    refused_choices: set[str] = field(default_factory=set)
