"""What the reason of an outcome without a score means, in a sentence for people."""

from groundwatch.conversations.conversation import REASONS as LEFT_OUT

REASONS = {
    # Nobody judged it.
    "sampled_out": "Sampling left it out.",
    "over_budget": "The budget for judging had too little left at that moment.",
    # A logged call of which too little was there to be judged.
    "no_answer": "The answer was not logged, or it is empty.",
    "no_model": "The call did not say which model answered.",
    "no_span": "Messages were logged, and the span that names their model never came.",
    "no_request": "The answer was logged, and what was asked never came.",
    "no_response": "What was asked was logged, and the answer never came.",
    "unreadable": "What was logged is no call of a model that is read.",
    "malformed": "What was logged is no text that can be stored.",
    "invalid": "A field of what was logged is not taken.",
    "too_large": "What was logged is larger than one response may be.",
    "image": "An image of the call was erased, or cannot be taken.",
    # A stage could not go on with it.
    "dead_letter": "A stage gave it up after several attempts: see the dead letters.",
    "undecodable": "What came to a stage could not be read.",
    # There is nothing that could be judged.
    "reasoning_only": "The answer is reasoning alone, without its end.",
    "another_language": "The answer is in a language that this engine does not read.",
    "answer_too_long": "The answer is longer than what is judged.",
    "no_claim_in_answer": "The answer makes no claim that could be checked.",
    "took_too_long": "Reading or judging the answer took longer than one may take.",
    "nothing_to_verify": "The answer says nothing that could be checked.",
    "no_triplets": "The answer holds no triplet.",
    "no_features": "The answer names no feature that could be matched.",
    "too_many_features": "The answer names more features than are matched with each other.",
    "nothing_to_look_at": "There is neither an image nor a reference that this judge could look at.",
    "no_reference": "This protocol needs a reference of what is in the image, and there is none.",
    "no_truth": "The question carries no true answer.",
    "no_sequence": "The question names no sequence of images.",
    "missing_image": "An image of the answer is not stored any more.",
    "unreadable_image": "An image cannot be decoded.",
    # The reply of a model under test cannot be read as yes or no.
    "refused_reply": "The model refused to answer the question.",
    "unsure_reply": "The reply says neither yes nor no.",
    "contradictory_reply": "The reply says both yes and no.",
    "unreadable_reply": "The reply cannot be read as an answer to the question.",
    # The judge could not judge.
    "empty_reply": "The reply is empty.",
    "refused": "The judge refused to answer.",
    "unparsable_reply": "The judge's reply could not be read.",
    "cut_off": "The judge's reply was cut off before its end.",
    "prompt_too_long": "What was asked is longer than what is taken.",
    "judge_rejected_request": "The judge's server takes no such request.",
    "judge_changed": "Another judge answered in the middle: one score is never of two.",
    "nothing_decided": "The judge could decide none of its facts.",
    "not_finite": "The judge's model gave what is no number.",
    "no_logprobs": "The judge's server gives no probabilities of words.",
    "no_similarity": "The images could not be compared.",
    "not_configured": "The settings name no engine for this stage.",
}
"""Every reason that an outcome can have, besides those of `conversations.conversation`."""


def explain(reason: str, *, declined: bool = False) -> str:
    """The sentence; empty for a reason of another version. `declined`: nobody was to judge the answer."""
    left_out = LEFT_OUT.get(reason)
    if left_out is None or (reason in REASONS and not declined):
        return REASONS.get(reason, "")
    told = f"{left_out.library} {left_out.did}; what keeps it: {left_out.setting}."
    return told[0].upper() + told[1:]
