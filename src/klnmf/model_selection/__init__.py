"""Choose the number of components, and find components that many runs agree on."""

from klnmf.model_selection.consensus_result import Consensus, NullAgreement
from klnmf.model_selection.consensus_runs import consensus
from klnmf.model_selection.rank_selection import RankSelection
from klnmf.model_selection.selection import select_rank

__all__ = ["Consensus", "NullAgreement", "RankSelection", "consensus", "select_rank"]
