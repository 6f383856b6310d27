"""The words that stand around the label in a teacher's answer: for a label, "is", "not", "therefore". Those of other
languages than English come from memory; one that is missing leaves an answer unread.
"""

import re

EDGES = " \t\r\n\"'`*_.,;:!“”‘’«»„[](){}<>#-–—。：「」\u200b\u2060\ufeff"
_NOUN = (
    r"(?:label|answer|category|classification|intent|intention|prediction|verdict|kategorie|klasse|antwort|etikett"
    r"|étiquette|catégorie|classe|réponse|etiqueta|categoría|clase|respuesta|etichetta|categoria|risposta|rótulo"
    r"|resposta|categorie|antwoord|etykieta|kategoria|odpowiedź|метка|категория|класс|ответ)"
)
# prose has these too: they count where a sentence begins with them
_SOFT_NOUN = r"(?:class|topic|decision|choice|type|tag|conclusion|result|output|response|sentiment)"
_NOUN_CJK = r"(?:标签|標籤|类别|類別|分类|分類|答案|意图|ラベル|カテゴリー?|回答|答え|레이블|라벨|카테고리|분류|정답)"
_SIGN = r"\s*(?:[:=：]|->|=>|→|⇒)"
_IS = (
    r"(?:\s+(?:(?:would|should|must)\s+be|is|ist|lautet|est|es|è|é|jest)(?=\W)\s*[:：]?|\s*(?:は|是|为|為|은|는)\s*[:：]?"
    rf"|{_SIGN})\s*"
)
_FILLER = (
    r"(?:(?:most likely|likely|clearly|definitely|probably|simply|therefore|thus|the|a|an|label|category|class)"
    r"\s+){0,3}"
)
_GAP = r"(?:\s+(?:here|for|of|to|in|that|which|für|pour|de|para|dla|voor|для|i)\b[^\n.:;!?=,]{0,60}?)?"
_VERB = r"\b(?:classif|label|categori[sz]|tag)\w*\b[^\n.:;!?,]{0,40}?\s(?:as|under|into)\s+"
LEAD = (
    rf"(?:(?<!\w)(?<!\ban )(?<!\bany )(?<!\bno )(?<!'s ){_NOUN}(?!\w){_GAP}{_IS}|{_NOUN_CJK}{_IS}|{_VERB}"
    r"|(?:^|(?<=\n)|(?<=[.!]\s)|\b(?:final|predicted|my)\s)\W{0,4}(?:(?:the|final|best|correct)\s+){0,2}"
    rf"{_SOFT_NOUN}{_IS}){_FILLER}"
)
END = (
    r"(?=\s*(?:$|[.](?!\w)|[,;:!()\[\]}>|\n。，、；：！（）】」–—]|\s-(?!>)|(?:because|since)\b"
    r"|です|である|입니다|이다|로 ))"
)
AFTER_LINE_START = re.compile(
    r"\s*(?:[:：(–—]|\s-\s|->|→|[.!。](?!\w)|,?\s+(?:because|since)\b|,\s+(?:as|the|this|it|he|she|they)\b)"
)
EXPLAINS = re.compile(r"\W*(?:because|since|as)\b", re.IGNORECASE)
FINAL = re.compile(r"\b(?:final|finally|therefore|thus|hence|so|overall|ultimately|in conclusion)\b", re.IGNORECASE)
TURN = re.compile(r"\b(?:so|therefore|thus|hence|but|consequently|deshalb|daher|donc)\b", re.IGNORECASE)
STOP = re.compile(r"[.!?…](?=\s|$)|[。！？\n]")
_NOT = (
    r"(?<!\w)(?:no|not|never|none|neither|nor|cannot|without|hardly|unlikely|wrong|incorrect|false|unsure|uncertain"
    r"|nicht|kein\w*|nie|weder|noch|pas|jamais|aucun\w*|nunca|ningun\w*|non|não|nem|nessun\w*|niet|geen|inte|ikke|icke"
    r"|ingen|ne|není|не|нет|ни|değil|ei|không|bukan|tidak)(?!\w)|n['’]t\b|\bn['’]|不|没|沒|非|无|ない|ません|아니|않|없"
    r"|ليس|नहीं"
)
DOUBT = re.compile(
    _NOT + r"|(?<!\w)(?:or|oder|ou|или|either|between|if|whether|unless|except|rather|instead|might|may|could|maybe"
    r"|perhaps|possible|possibly|vielleicht|wenn|ob|statt|exclud\w+|reject\w+|rul\w+ out|alternative\w*|second|runner"
    r"|another|other (?:label|category|class|answer)|least|worst|nobody|avoid\w*|similar|resembl\w+|mistak\w+|confus\w+"
    r"|sorry|unable)(?!\w)|或",
    re.IGNORECASE,
)
TAKEN_BACK = re.compile(
    r"(?!\W*none of\b)\W*"
    r"(?:(?:it|this|that|which|is|was|does|do|would|can|could|be|fits?|the|label|seems?|i|am|i'm)\W+){0,4}(?:"
    + _NOT
    + r"|(?:or|and|oder|und|ou|et|или|if|unless|maybe|perhaps|possibly|rejected|excluded|doubtful)\b"
    r"|0(?:[.,][0-4]\d*)?%?(?![\d.,])|[1-4]?\d\s?%)",
    re.IGNORECASE,
)
REFUSES = re.compile(r"\b(?:sorry|cannot|unable|as an ai)\b|can['’]t", re.IGNORECASE)
ENGLISH = re.compile(r"\b(?:the|this|is|it|it's|i|i'd|would|my|be|as|therefore|thus|hence)\b", re.IGNORECASE)
TAG = re.compile(
    r"<(answer|label|category|class|classification|intent|output|result|final|final_answer|prediction)>(.{0,200}?)</\1>",
    re.IGNORECASE | re.DOTALL,
)
BOX = re.compile(
    r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){0,200})\}|<\|begin_of_box\|>(.{0,200}?)<\|end_of_box\|>", re.DOTALL
)
TEX = re.compile(r"\\(?:text\w*|math\w+)\s*\{([^{}]*)\}")
OBJECT = re.compile(r"\{[^{}]*\}")
KEYS = re.compile(
    rf"{_NOUN}|{_SOFT_NOUN}|(?:predicted|final|assigned|best)_?\w+|labels|categories|classes|intents", re.IGNORECASE
)
# pictures at the ends of an answer, but for those that say no or ask: crosses, thumbs down, signs of warning
_PICTURE = r"(?![❌✖✗✘❎👎🚫⛔❓❔⚠❗])[\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u200d→⇒]"
PICTURES = re.compile(rf"^(?:\s*{_PICTURE})+|(?:{_PICTURE}\s*)+$")
LINE_MARK = re.compile(r"^\s*(?:[-*•>#]+|\d{1,2}[.)])\s+")
